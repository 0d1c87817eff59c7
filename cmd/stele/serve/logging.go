package serve

import (
	"io"
	"log/slog"
	"time"

	"github.com/lmittmann/tint"

	"github.com/steledb/stele/cmd/stele/cli"
)

// newLogger returns the logger of a node. The format auto means the journal under systemd, colour on
// a terminal, JSON with --json, else text.
func newLogger(a *cli.App, w io.Writer, format, level string) *slog.Logger {
	var minLevel slog.Level
	_ = minLevel.UnmarshalText([]byte(level)) // validated with the settings
	if format == "auto" && a.JSON {
		format = "json"
	}
	opts := &slog.HandlerOptions{Level: minLevel}
	switch {
	case format == "json":
		return slog.New(slog.NewJSONHandler(w, opts))
	case format == "journal" || format == "auto" && cli.InJournal():
		return slog.New(newJournalHandler(minLevel, slog.NewTextHandler(w, opts)))
	case format == "auto" && a.ErrTTY:
		return slog.New(tint.NewTextHandler(w, &tint.Options{Level: minLevel, TimeFormat: time.TimeOnly, NoColor: !a.Color}))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}
