package node

import "log/slog"

// once logs a repeated failure only when its text changes. It is for one goroutine.
type once struct{ text string }

// warn logs err unless it was logged last. A nil error resets it.
func (o *once) warn(log *slog.Logger, msg string, err error) {
	if err == nil {
		o.text = ""
		return
	}
	if text := err.Error(); text != o.text {
		o.text = text
		log.Warn(msg, "err", err)
	}
}
