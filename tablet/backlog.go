package tablet

import "sync/atomic"

// backlog tells how far compactions are behind with the files of a tablet, or of any tablet of a server.
type backlog uint8

const (
	noBacklog backlog = iota
	// somewhatBehind: the files of a group are halfway from FilesMerge, at which they are to be merged, to half of FilesMax.
	somewhatBehind
	// farBehind: a group has half of FilesMax files. Reads suffer more from these than from compactions.
	farBehind
)

func (c *Config) backlogOf(files int) backlog {
	far := c.FilesMax / 2
	switch {
	case files >= far:
		return farBehind
	case files >= (c.FilesMerge+far)/2:
		return somewhatBehind
	}
	return noBacklog
}

// backlogs counts the tablets of a server that have each backlog; of those that have none, nothing is known.
type backlogs [farBehind + 1]atomic.Int64

// worst returns the worst that a tablet has.
func (b *backlogs) worst() backlog {
	for x := farBehind; x > noBacklog; x-- {
		if b[x].Load() > 0 {
			return x
		}
	}
	return noBacklog
}

// setBacklog takes note of the tablet's. mu is held.
func (t *Tablet) setBacklog(b backlog) {
	if b == t.mu.backlog {
		return
	}
	t.server.backlogs[b].Add(1)
	t.server.backlogs[t.mu.backlog].Add(-1)
	t.mu.backlog = b
}

// behind tells that compactions are far behind with the files of some tablet.
func (s *Server) behind() bool { return s.backlogs.worst() == farBehind }
