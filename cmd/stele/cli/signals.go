package cli

import (
	"os"
	"os/signal"
	"syscall"
)

// Signals returns the signals that end a command gracefully. SIGHUP is not among them if it is
// ignored, as under nohup.
func Signals() []os.Signal {
	all := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		all = append(all, syscall.SIGHUP)
	}
	return all
}
