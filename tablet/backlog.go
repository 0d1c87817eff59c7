package tablet

import "sync/atomic"

// backlog is how far compactions are behind with the files of a tablet, or of any tablet of a
// server.
type backlog uint8

const (
	noBacklog backlog = iota
	// somewhatBehind: a group has at least halfway from FilesMerge, where merging starts, to half
	// of FilesMax files.
	somewhatBehind
	// farBehind: a group has half of FilesMax files. So many harm reads more than compactions do.
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

// backlogs counts a server's tablets by backlog. The count of noBacklog is meaningless.
type backlogs [farBehind + 1]atomic.Int64

// worst returns the worst backlog of any tablet.
func (b *backlogs) worst() backlog {
	for x := farBehind; x > noBacklog; x-- {
		if b[x].Load() > 0 {
			return x
		}
	}
	return noBacklog
}

// setBacklog updates the tablet's backlog. mu is held.
func (t *Tablet) setBacklog(b backlog) {
	if b == t.mu.backlog {
		return
	}
	t.server.backlogs[b].Add(1)
	t.server.backlogs[t.mu.backlog].Add(-1)
	t.mu.backlog = b
}

// behind reports whether compactions are far behind with any tablet.
func (s *Server) behind() bool { return s.backlogs.worst() == farBehind }
