package gossip

// Slower makes all of gossip that many times slower.
func (c *Config) Slower(times int) { c.slower = times }
