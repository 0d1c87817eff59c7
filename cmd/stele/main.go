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
	// The first signal cancels the context. With stop the second has its usual
	// effect, so that nothing can hang for good.
	ctx, stop := signal.NotifyContext(context.Background(), signals()...)
	context.AfterFunc(ctx, stop)
	defer stop()
	a := newApp(os.Stdin, os.Stdout, os.Stderr)
	return a.run(ctx, os.Args[1:])
}

// signals lists those that end a command in good order. One that nohup has turned
// off must stay off.
func signals() []os.Signal {
	all := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		all = append(all, syscall.SIGHUP)
	}
	return all
}
