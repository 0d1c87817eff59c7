package repair

import (
	"errors"
	"testing"
	"time"

	"github.com/steledb/stele/blobfs/local"
)

// A task pushed for a busy extent runs after the current one, once.
func TestTaskOfBusyExtent(t *testing.T) {
	clock := &manualClock{at: time.Minute}
	q := newTaskQueue(clock)
	x := local.ExtentID{Blob: local.ID{1}}
	q.push(task{id: x, rank: 1})
	first, err := q.pop(t.Context())
	if err != nil || first.rank != 1 {
		t.Fatalf("%+v, %v", first, err)
	}
	q.push(task{id: x, rank: 2})
	if len(q.heap) != 0 {
		t.Error("two are busy with one extent")
	}
	q.done(first, nil)
	if len(q.heap) != 1 || q.heap[0].rank != 2 {
		t.Fatalf("after the first task there wait %d", len(q.heap))
	}
	second, _ := q.pop(t.Context())
	q.done(second, nil)
	if !q.idleAfterWork() || q.idleAfterWork() {
		t.Error("idleAfterWork is not true exactly once")
	}
	if !q.claim(x) {
		t.Fatal("it is still busy")
	}
	q.push(task{id: x, rank: 2})
	q.unclaim(x)
	if len(q.heap) != 1 {
		t.Error("what was pushed while the extent was claimed is forgotten")
	}
}

// A failed task is retried after a second, and then with exponential backoff.
func TestTaskIsRetried(t *testing.T) {
	clock := &manualClock{at: time.Minute}
	q := newTaskQueue(clock)
	x := task{id: local.ExtentID{Blob: local.ID{1}}, rank: 1}
	for _, pause := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		q.push(x)
		if len(q.heap) != 1 {
			t.Fatalf("before the pause of %v there wait %d", pause, len(q.heap))
		}
		got, _ := q.pop(t.Context())
		q.done(got, errors.New("none"))
		clock.at += pause - time.Millisecond
		q.requeueFailed()
		if len(q.heap) != 0 {
			t.Fatalf("tried again before %v", pause)
		}
		clock.at += time.Millisecond
	}
}
