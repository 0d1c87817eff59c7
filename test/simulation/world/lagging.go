package world

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/table"
)

// Bounds of a recovery from a voter that lacks changes.
const (
	laggingTables = 3               // tables that the voter does not know
	recoveredMax  = 2 * time.Minute // until tables can be created again
)

// recoverLagging recovers the lock service from the first of the voters, which was cut off while tables were created. What the voter
// lacks may be lost: the tables, and with them what they hold. But an id that was issued must not be issued again (SW14): METADATA, logs and files
// still have it. Nothing else is judged then. It returns false.
func (w operators) recoverLagging(ids []string) bool {
	h := w.inspector().hostOfNode(ids[0])
	if h == nil || h == w.leader {
		return true // the others are recovered from in other seeds
	}
	links := w.cutOff(h)
	for i := range laggingTables {
		name := fmt.Sprintf("unknown%d", i)
		err := w.ask(time.Now().Add(healMax), func(ctx context.Context, c *client.Client) error { return createPlain(ctx, c, name) })
		if err != nil {
			w.fail("SW1 service: no table can be created while %s is cut off: %v", h.name, err)
			return false
		}
	}
	var issued []uint64
	err := w.ask(time.Now().Add(healMax), func(ctx context.Context, c *client.Client) (err error) {
		issued, err = issuedIDs(ctx, c)
		return err
	})
	if err != nil {
		w.fail("SW1 service: no list of tables while %s is cut off: %v", h.name, err)
		return false
	}
	w.trace.addf("world", "all nodes stop, and the lock service is recovered from %s, which lacks changes", h.name)
	for _, o := range w.hosts {
		o.kill(w.r.IntN(2) == 0)
	}
	w.reconnect(links)
	if err := w.recoverGroup(h); err != nil {
		w.fail("SW7 recovery: %v", err)
		return false
	}
	w.count("recoveries of the lock service from a voter that lacks changes")
	h.up()
	w.sleep(0, 10*time.Second)
	for _, o := range w.hosts {
		o.up()
	}
	w.judgeIDs(issued)
	return false
}

// judgeIDs creates tables whose ids must not have been issued before (SW14).
func (w operators) judgeIDs(issued []uint64) {
	end := time.Now().Add(recoveredMax)
	for i := range 2 * laggingTables {
		name := fmt.Sprintf("later%d", i)
		var id uint64
		err := w.ask(end, func(ctx context.Context, c *client.Client) error {
			s, err := c.Tables().Create(ctx, name, table.FamilySpec{Name: "f"})
			if errors.Is(err, client.ErrTableExists) { // by an attempt whose answer was lost
				return nil
			}
			if err == nil {
				id = s.ID
			}
			return err
		})
		if err != nil {
			w.fail("SW7 recovery: no table can be created within %v: %v", recoveredMax, err)
			return
		}
		if id != 0 && slices.Contains(issued, id) {
			w.fail("SW14 ids: table %s gets id %d after the recovery of the lock service, which had been issued before", name, id)
			return
		}
	}
}

func createPlain(ctx context.Context, c *client.Client, name string) error {
	_, err := c.Tables().Create(ctx, name, table.FamilySpec{Name: "f"})
	if errors.Is(err, client.ErrTableExists) { // by an attempt whose answer was lost
		err = nil
	}
	return err
}

// issuedIDs returns the ids of all tables and tablets that exist.
func issuedIDs(ctx context.Context, c *client.Client) (ids []uint64, err error) {
	tables, err := c.Tables().List(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range tables {
		ids = append(ids, s.ID)
		info, err := c.Tables().Describe(ctx, s.Name)
		if err != nil {
			return nil, err
		}
		for i := range info.Tablets {
			ids = append(ids, info.Tablets[i].ID)
		}
	}
	return ids, nil
}
