package loglimit

import "log/slog"

// OnChange logs a repeated failure only when its text changes. It is for one goroutine. The zero value is ready for use.
type OnChange struct{ text string }

// WarnError logs err unless it was logged last. A nil error resets it.
func (o *OnChange) WarnError(log *slog.Logger, msg string, err error) {
	if err == nil {
		o.text = ""
		return
	}
	if text := err.Error(); text != o.text {
		o.text = text
		log.Warn(msg, "err", err)
	}
}
