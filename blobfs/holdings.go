package blobfs

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/local"
)

// Holding describes a blob by the extents that nodes list.
type Holding struct {
	ID      ID
	Bytes   int64
	Extents int
	// Replicas is the lowest number of replicas of any extent.
	Replicas int
	Created  time.Time // of its newest extent
	// Refs are the extents as listed, without checksums.
	Refs []ExtentRef
}

// Holdings returns up to max blobs of which any node has extents, and the nodes that did not
// answer. Blobs are in order of their IDs, from the first after the given one. No blobs means that
// there are no more.
func (s *Store) Holdings(ctx context.Context, after ID, max int) ([]Holding, []string, error) {
	if err := s.usable(ctx); err != nil {
		return nil, nil, fmt.Errorf("list blobs: %w", err)
	}
	lists := []*nodeList{{node: s.self, peer: s.Peer()}}
	var silent []string
	if s.cluster.Membership != nil {
		for _, node := range s.peers.Others() {
			p, err := s.peers.Peer(ctx, node)
			if err != nil || s.peers.Suspected(node) && !s.peers.BelievedAlive(node) {
				silent = append(silent, node)
				continue
			}
			lists = append(lists, &nodeList{node: node, peer: p})
		}
	}
	for _, l := range lists {
		l.after = ExtentID{Blob: after, Index: local.ExtentsMax - 1}
		if after.IsZero() {
			l.after = ExtentID{Index: -1}
		}
	}
	var found []Holding
	for ctx.Err() == nil {
		s.fill(ctx, lists)
		var next *local.ExtentInfo
		for _, l := range lists {
			if len(l.page) > 0 && (next == nil || bytes.Compare(l.page[0].ID.Blob[:], next.ID.Blob[:]) < 0) {
				next = &l.page[0]
			}
		}
		if next == nil {
			break
		}
		if n := len(found); n == 0 || found[n-1].ID != next.ID.Blob {
			if n == max {
				break
			}
			found = append(found, Holding{ID: next.ID.Blob})
		}
		found[len(found)-1].take(lists)
	}
	for _, l := range lists {
		if l.err != nil {
			silent = append(silent, l.node)
		}
	}
	for i := range found {
		found[i].sum()
	}
	return found, silent, ctx.Err()
}

// nodeList is the paged list of the extents on a node.
type nodeList struct {
	node  string
	peer  api.Peer
	after ExtentID
	page  []local.ExtentInfo
	ended bool
	err   error
}

// fill fetches the next page of each list whose page is empty.
func (s *Store) fill(ctx context.Context, lists []*nodeList) {
	var group sync.WaitGroup
	for _, l := range lists {
		if len(l.page) > 0 || l.ended {
			continue
		}
		group.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, s.cluster.ReplyTimeout)
			defer cancel()
			l.page, l.err = l.peer.List(ctx, l.after, api.ListMax)
			if l.ended = l.err != nil || len(l.page) == 0; !l.ended {
				l.after = l.page[len(l.page)-1].ID
			}
		})
	}
	group.Wait()
}

// take removes the blob's extents from the current pages and adds them to h.
func (h *Holding) take(lists []*nodeList) {
	for _, l := range lists {
		n := 0
		for n < len(l.page) && l.page[n].ID.Blob == h.ID {
			h.add(l.node, &l.page[n])
			n++
		}
		l.page = l.page[n:]
	}
}

func (h *Holding) add(node string, x *local.ExtentInfo) {
	i := slices.IndexFunc(h.Refs, func(r ExtentRef) bool { return r.Index == x.ID.Index })
	if i < 0 {
		i = len(h.Refs)
		h.Refs = append(h.Refs, ExtentRef{Index: x.ID.Index, Length: x.Length})
	}
	h.Refs[i].Replicas = append(h.Refs[i].Replicas, node)
	if x.Created.After(h.Created) {
		h.Created = x.Created
	}
}

func (h *Holding) sum() {
	slices.SortFunc(h.Refs, func(a, b ExtentRef) int { return a.Index - b.Index })
	h.Extents = len(h.Refs)
	for i, x := range h.Refs {
		h.Bytes += x.Length
		if i == 0 || len(x.Replicas) < h.Replicas {
			h.Replicas = len(x.Replicas)
		}
	}
}
