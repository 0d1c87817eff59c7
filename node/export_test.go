package node

import (
	"context"
	"errors"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/tablet"
)

// LogHolders counts the nodes that say that they have a log of the lock service's group, as the master hears it.
func (n *Node) LogHolders(ctx context.Context) (count int, err error) {
	all, err := n.servers(ctx)
	for _, s := range all {
		if s.Alive && s.HasLog {
			count++
		}
	}
	return count, err
}

// MetadataTablets returns METADATA's tablets that the node serves.
func (n *Node) MetadataTablets() []tablet.TabletStats {
	all, err := n.tabletsOf(metadata.Name).TabletStats(metadata.Name)
	if err != nil {
		return nil
	}
	return all
}

// SplitMetadata splits the largest of METADATA's tablets here, the root tablet aside, in the middle; false if
// there is none that can be.
func (n *Node) SplitMetadata(ctx context.Context) (bool, error) {
	s := n.server.Load()
	id, most := uint64(0), int64(0)
	for _, t := range n.MetadataTablets() {
		if t.ID != metadata.RootTabletID && t.Bytes > most {
			id, most = t.ID, t.Bytes
		}
	}
	if id == 0 {
		return false, nil
	}
	_, err := s.metadata.Split(ctx, id, nil)
	if errors.Is(err, tablet.ErrNoSplitRow) || errors.Is(err, api.ErrNotServing) {
		return false, nil
	}
	return err == nil, err
}

// LoseLock ends the node's session: its tablet servers end, and it comes back as another one with nothing.
func (n *Node) LoseLock(ctx context.Context) error { return n.meta.current().Close(ctx) }

// ServerName is what the node's tablet server for users' tables is called.
func (n *Node) ServerName() string { return n.server.Load().name }
