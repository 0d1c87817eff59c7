package node_test

import (
	"maps"
	"testing"
	"time"

	"github.com/steledb/stele/client"
)

// TestScheduledBackups (BU7): a schedule that was created while masters die makes its backup once, and that restores.
func TestScheduledBackups(t *testing.T) {
	t.Parallel()
	f := newBackupCluster(t, 3)
	f.await(0, "three voters", votersAlive(3))
	f.create("t")
	f.fill("t", 1)
	want := f.rows("t")
	c := good(client.Open(f.ctx, f.addrs[0]+","+f.addrs[1]+","+f.addrs[2], client.Config{RetryTimeMax: 30 * time.Second}))
	defer c.Close()
	if err := c.Backups().CreateSchedule(f.ctx, client.ScheduleSpec{Name: "yearly", Every: 365 * 24 * time.Hour, Keep: 366 * 24 * time.Hour}); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the master, perhaps in the midst of it, and the one after it
		i := f.master()
		f.stop(i)
		f.start(i)
		f.await(i, "three voters again", votersAlive(3))
	}
	for {
		all := good(c.Backups().Schedules(f.ctx))
		if len(all) != 1 || all[0].Failures > 0 { // an error may pass: servers of tablets were stopped
			t.Fatalf("schedules %+v", all)
		}
		if all[0].GoodMS != 0 {
			break
		}
		if time.Sleep(20 * time.Millisecond); f.ctx.Err() != nil {
			t.Fatal("the backup is not made")
		}
	}
	list := good(c.Backups().List(f.ctx))
	if len(list) != 1 || list[0].Schedule != "yearly" || list[0].ExpiresMS == 0 {
		t.Fatalf("backups %+v", list)
	}
	f.c = c
	good(c.Backups().Restore(f.ctx, list[0].ID, "t", "u"))
	if got := f.rows("u"); !maps.Equal(got, want) {
		t.Errorf("the restored table has\n%v, want\n%v", got, want)
	}
	if err := c.Backups().DeleteSchedule(f.ctx, "yearly"); err != nil {
		t.Error(err)
	}
	if all := good(c.Backups().Schedules(f.ctx)); len(all) != 0 {
		t.Errorf("after the deletion: %+v", all)
	}
}
