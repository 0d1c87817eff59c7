package serve

import (
	"bytes"
	"errors"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/journal"
)

func TestJournalHandler(t *testing.T) {
	type entry struct {
		text   string
		p      journal.Priority
		fields map[string]string
	}
	var sent []entry
	var broken error
	var stderr bytes.Buffer
	h := newJournalHandler(slog.LevelInfo, slog.NewTextHandler(&stderr, nil))
	h.send = func(text string, p journal.Priority, fields map[string]string) error {
		sent = append(sent, entry{text, p, maps.Clone(fields)})
		return broken
	}
	log := slog.New(h)
	log.Debug("below the level")
	log.With("part", "rpc").WithGroup("conn").Warn("refused", "from", "10.0.0.5:1", slog.Group("why", "text", "a \"b\"\n", "in", time.Second), "", slog.GroupValue(slog.Int("n", 3)))
	log.Error("broken", "err", errors.New("disk on fire"), "empty", "", "fää", 1)
	want := []entry{
		{
			`refused part=rpc conn.from=10.0.0.5:1 conn.why.text="a \"b\"\n" conn.why.in=1s conn.n=3`, journal.PriWarning,
			map[string]string{
				"SYSLOG_IDENTIFIER": "stele", "STELE_PART": "rpc", "STELE_CONN_FROM": "10.0.0.5:1", "STELE_CONN_WHY_TEXT": "a \"b\"\n", "STELE_CONN_WHY_IN": "1s", "STELE_CONN_N": "3",
			},
		},
		{
			`broken err="disk on fire" empty="" fää=1`, journal.PriErr,
			map[string]string{"SYSLOG_IDENTIFIER": "stele", "STELE_ERR": "disk on fire", "STELE_EMPTY": "", "STELE_F__": "1"},
		},
	}
	if len(sent) != len(want) {
		t.Fatalf("sent %+v", sent)
	}
	for i, w := range want {
		if sent[i].text != w.text || sent[i].p != w.p || !maps.Equal(sent[i].fields, w.fields) {
			t.Errorf("sent %+v, want %+v", sent[i], w)
		}
	}
	if stderr.Len() > 0 {
		t.Errorf("standard error: %q, want nothing", &stderr)
	}
	// Records that the journal does not accept go to standard error.
	broken = errors.New("no socket")
	log.With("part", "rpc").Info("hello", "n", 1)
	if got := stderr.String(); !strings.Contains(got, "msg=hello part=rpc n=1") {
		t.Errorf("standard error: %q", got)
	}
	if f := journalField(strings.Repeat("x", 100)); len(f) != 64 {
		t.Errorf("a field of %d bytes", len(f))
	}
}
