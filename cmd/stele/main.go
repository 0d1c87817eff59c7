package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() { os.Exit(mainCode()) }

// mainCode runs the command line and returns the exit code.
func mainCode() int {
	// The first signal cancels the context. Then stop restores the default action, so that a second
	// signal ends a process that hangs.
	ctx, stop := signal.NotifyContext(context.Background(), signals()...)
	context.AfterFunc(ctx, stop)
	defer stop()
	a := newApp(os.Stdin, os.Stdout, os.Stderr)
	return a.run(ctx, os.Args[1:])
}

// signals returns the signals that end a command gracefully. SIGHUP is not among them if it is
// ignored, as under nohup.
func signals() []os.Signal {
	all := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		all = append(all, syscall.SIGHUP)
	}
	return all
}
