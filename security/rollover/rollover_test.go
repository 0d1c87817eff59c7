package rollover

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/security/pki"
)

func authority(t *testing.T, cluster string) *pki.Authority {
	t.Helper()
	a, err := pki.NewAuthority(cluster, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestStages: a stage ends when all nodes have completed it. Progress of another rollover does not
// count.
func TestStages(t *testing.T) {
	one, two, three := authority(t, "c1"), authority(t, "c1"), authority(t, "c1")
	r := &Record{Stage: Trust, Old: one.Certificate(), New: two.Certificate(), Started: time.Unix(1_800_000_000, 0).UTC()}
	again, err := Decode(r.Encode())
	if err != nil || !reflect.DeepEqual(again, r) {
		t.Fatalf("read again: %+v, %v", again, err)
	}
	other := &Record{Stage: Forget, Old: one.Certificate(), New: three.Certificate()}
	nodes := []string{"n3", "n2", "n1", "n4"}
	progress := map[string][]byte{"n1": r.Done(), "n2": other.Done(), "n4": []byte("{"), "gone": r.Done()}
	if got := Waiting(r, nodes, progress); !slices.Equal(got, []string{"n2", "n3", "n4"}) {
		t.Errorf("waiting for %q", got)
	}
	if got := Waiting(r.At(Sign), []string{"n1"}, progress); len(got) != 1 {
		t.Error("a stage was done before it began")
	}
	var stages []Stage
	for s := Trust; ; {
		stages = append(stages, s)
		next := r.At(s).Next()
		if next == s {
			next = s + 1 // the operator
			stages = append(stages, 99)
		}
		if next == 0 {
			break
		}
		s = next
	}
	if !slices.Equal(stages, []Stage{Trust, Sign, 99, Renew, Forget}) {
		t.Errorf("the stages are %v", stages)
	}
	for s := Trust; s <= Forget; s++ {
		all := r.At(s).Authorities()
		if last := all[len(all)-1]; last != r.New || (len(all) == 1) != (s == Forget) {
			t.Errorf("at %s %d authorities are trusted", s, len(all))
		}
	}
}

func TestBadRecords(t *testing.T) {
	one, two, strange := authority(t, "c1"), authority(t, "c1"), authority(t, "c2")
	good := &Record{Stage: Trust, Old: one.Certificate(), New: two.Certificate()}
	for what, b := range map[string][]byte{
		"nothing": nil, "a later stage": good.At(5).Encode(), "no stage": good.At(0).Encode(),
		"two clusters": (&Record{Stage: Trust, Old: one.Certificate(), New: strange.Certificate()}).Encode(),
		"a format":     []byte(`{"format":2,"stage":1}`), "no certificates": []byte(`{"format":1,"stage":1}`),
	} {
		if _, err := Decode(b); err == nil {
			t.Errorf("%s: was read", what)
		}
	}
}

// TestEachStageIsKept: a record of each stage round-trips.
func TestEachStageIsKept(t *testing.T) {
	r := &Record{Old: authority(t, "c1").Certificate(), New: authority(t, "c1").Certificate()}
	for s := Trust; s <= Forget; s++ {
		if got, err := Decode(r.At(s).Encode()); err != nil || got.Stage != s {
			t.Errorf("stage %s: %+v, %v", s, got, err)
		}
	}
}

// TestProgressOfOtherVersions: progress in an unknown format does not count. Otherwise a node would
// drop the old authority too early.
func TestProgressOfOtherVersions(t *testing.T) {
	r := &Record{Stage: Sign, Old: authority(t, "c1").Certificate(), New: authority(t, "c1").Certificate()}
	done := string(r.Done())
	if !r.IsDone([]byte(done)) || !r.IsDone(r.At(Renew).Done()) {
		t.Fatal("what is done, or more, does not count")
	}
	for what, b := range map[string]string{
		"another format":     strings.Replace(done, `"format":1`, `"format":2`, 1),
		"a stage in letters": strings.Replace(done, `}`, `,"stage":"sign"}`, 1),
		"a stage before":     string(r.At(Trust).Done()),
	} {
		if b == done || r.IsDone([]byte(b)) {
			t.Errorf("%s counts: %s", what, b)
		}
	}
}
