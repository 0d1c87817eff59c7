package main

import (
	"io"
	"log/slog"
	"time"

	"github.com/lmittmann/tint"
)

// newLogger returns the logger of a node. The format auto means the journal under systemd, colour on
// a terminal, JSON with --json, else text.
func (a *app) newLogger(w io.Writer, format, level string) *slog.Logger {
	var minLevel slog.Level
	_ = minLevel.UnmarshalText([]byte(level)) // validated with the settings
	if format == "auto" && a.json {
		format = "json"
	}
	opts := &slog.HandlerOptions{Level: minLevel}
	switch {
	case format == "json":
		return slog.New(slog.NewJSONHandler(w, opts))
	case format == "journal" || format == "auto" && inJournal():
		return slog.New(newJournalHandler(minLevel, slog.NewTextHandler(w, opts)))
	case format == "auto" && a.errTTY:
		return slog.New(tint.NewTextHandler(w, &tint.Options{Level: minLevel, TimeFormat: time.TimeOnly, NoColor: !a.color}))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}
