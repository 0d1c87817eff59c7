package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// Main runs the command line of this process, with the commands that groups returns, and returns the
// exit code.
func Main(groups func(*App) []Group) int {
	// The first signal cancels the context. Then stop restores the default action, so that a second
	// signal ends a process that hangs.
	ctx, stop := signal.NotifyContext(context.Background(), Signals()...)
	context.AfterFunc(ctx, stop)
	defer stop()
	a := New(os.Stdin, os.Stdout, os.Stderr)
	return a.Run(ctx, groups(a), os.Args[1:])
}

// Signals returns the signals that end a command gracefully. SIGHUP is not among them if it is
// ignored, as under nohup.
func Signals() []os.Signal {
	all := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		all = append(all, syscall.SIGHUP)
	}
	return all
}
