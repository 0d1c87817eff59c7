package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/table"
)

// freeze makes all writes to a disk hang until thaw. Reads work.
func (d *disk) freeze() error { return d.ioctl("freeze", 0xc0045877) } // FIFREEZE

func (d *disk) thaw() error { return d.ioctl("thaw", 0xc0045878) } // FITHAW

func (d *disk) ioctl(what string, request uint) error {
	f, err := os.Open(d.path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.IoctlSetInt(int(f.Fd()), request, 0); err != nil {
		return fmt.Errorf("%s %s: %w", what, d.path, err)
	}
	return nil
}

// A disk of a node hangs permanently, though not the one that the lock service uses. The node exits
// and logs the reason, which other nodes report, and others serve its tablets. No acknowledged write is lost, and when the
// disk is back so is the node.
func TestHungDisk(t *testing.T) {
	if err := canLosePower(); err != nil {
		t.Logf("no disk can hang here, requires root, loop devices and mkfs.ext4: %v", err)
		return
	}
	t.Parallel()
	c := newCluster(t, 3)
	c.settings = []string{"--reserve", "8MiB"}
	for _, n := range c.nodes {
		n.addPoweredDisk("disk", 192<<20)
		n.addPoweredDisk("more", 192<<20)
	}
	c.form()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	db, err := client.Open(ctx, strings.Join(c.addresses(), ","), c.keys.as(client.Config{DialTimeout: time.Second, RetryTimeMax: time.Minute}))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Tables().Create(ctx, "t", table.FamilySpec{Name: "f"}); err != nil {
		t.Fatal(err)
	}
	info, err := db.Tables().Describe(ctx, "t")
	if err != nil || len(info.Tablets) != 1 {
		t.Fatalf("tablets: %+v, %v", info, err)
	}
	var victim *node
	for _, n := range c.nodes {
		if at := info.Tablets[0].Node; at == n.String() || at == n.id {
			victim = n
		}
	}
	if victim == nil {
		t.Fatalf("no node serves %+v", info.Tablets[0])
	}
	rows := db.Table("t")
	put := func(i int) error {
		return rows.Apply(ctx, client.NewRowMutation(fmt.Sprintf("row%05d", i)).Set("f:q", []byte(fmt.Sprint(i))))
	}
	if err := put(0); err != nil {
		t.Fatal(err)
	}
	victim.mayExit = true
	if err := victim.disks[1].freeze(); err != nil {
		t.Fatal(err)
	}
	thaw := func() error { return victim.disks[1].thaw() }
	defer func() { _ = thaw() }() // otherwise nothing could be unmounted
	began, acked, slowest := time.Now(), 1, time.Duration(0)
	ended := time.Duration(0)
	for ended == 0 || time.Since(began) < ended+15*time.Second {
		if time.Since(began) > 2*time.Minute {
			t.Fatalf("%v has not exited:\n%s", victim, tail(victim.log(), 10))
		}
		start := time.Now()
		switch err := put(acked); {
		case errors.Is(err, client.ErrAmbiguous): // the node exited meanwhile: retry
			continue
		case err != nil:
			t.Fatalf("write %d after %v: %v", acked, time.Since(began), err)
		}
		slowest = max(slowest, time.Since(start))
		acked++
		if ended == 0 && strings.Contains(victim.log(), "has not answered for") {
			ended = time.Since(began)
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Logf("the node exited after %v; %d writes, slowest %v", ended.Round(time.Second), acked, slowest.Round(time.Millisecond))
	if err := thaw(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-victim.proc.Done():
		if victim.proc.Err() == nil {
			t.Error("the node exited without an error")
		}
	case <-time.After(20 * time.Second):
		t.Fatalf("%v does not exit:\n%s", victim, tail(victim.log(), 10))
	}
	nodes, err := db.Nodes().List(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		if n.ID == victim.id && (n.State != api.NodeLeft || !strings.Contains(n.Reason, "has not answered for")) {
			t.Errorf("after its exit the node is %s to the others, with the reason %q", n.State, n.Reason)
		}
	}
	victim.start()
	victim.mayExit = false
	c.settled(60*time.Second, 3)
	found, all := 0, rows.Scan(ctx)
	defer all.Close()
	for ; all.Next(); found++ {
		if want := fmt.Sprintf("row%05d", found); string(all.Row().Key) != want {
			t.Fatalf("row %q, want %q", all.Row().Key, want)
		}
	}
	if err := all.Err(); err != nil || found != acked {
		t.Errorf("%d rows of %d: %v", found, acked, err)
	}
}
