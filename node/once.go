package node

import "log/slog"

// once tells of a failure that is tried again and again: once while it stays the same. It is for one
// goroutine.
type once struct{ text string }

// warn tells of err, unless it was told; nil ends it.
func (o *once) warn(log *slog.Logger, msg string, err error) {
	if err == nil {
		o.text = ""
		return
	}
	if text := err.Error(); text != o.text {
		o.text = text
		log.Warn(msg, "error", err)
	}
}
