package locks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/internal/text"
	"github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/raftmeta/session"
)

const (
	// closeWait bounds the closing of a session, which releases its locks.
	closeWait = 5 * time.Second
	// sequencerVariable is the environment variable with the sequencer, for the command.
	sequencerVariable = "STELE_LOCK_SEQUENCER"
	// exitNoCommand is the exit code of shells and env for a command that cannot be run.
	exitNoCommand = 127
)

// holdFlags are the flags of hold.
type holdFlags struct {
	wait      time.Duration
	forever   bool
	shared    bool
	delay     time.Duration
	killAfter time.Duration
}

const holdLong = `Acquire the lock of a path, run a command, and release the lock when the command has
exited. If there is no such file, an empty one is created.

The command has the lock's sequencer in STELE_LOCK_SEQUENCER. Servers can check it
("stele lock check"), and it can guard writes ("stele lock set --guard"). Signals are
forwarded to the command.

If the lock service has no leader, or after a crash of this process, others can acquire
the lock only after the lock delay, --delay. The command is stopped before that: by
SIGTERM, and after --kill-after, which must not exceed --delay, by SIGKILL. With a delay
below about 5s, the lock does not survive a change of the leader.

A lock cannot stop the command if this process is killed: child processes of the command
may continue to run. The same holds for the whole command while this process is paused.
Servers that must reject such a command have to check the sequencer.

The exit code is that of the command: 128 plus the signal number if a signal killed it,
127 if it could not be run. 7 means that the lock was not acquired in time, 5 that it
was lost and the command was stopped. Other codes are those of "stele --help".`

const holdExample = `  stele lock hold /locks/nightly -- ./nightly.sh --full
  stele lock hold /locks/nightly --wait 10m -- sh -c 'stele lock check "$STELE_LOCK_SEQUENCER" && ./deploy'
  stele lock hold /locks/data --shared --wait forever -- ./reader`

func holdCommand(a *cli.App) *cobra.Command {
	h := &holdFlags{delay: 30 * time.Second, killAfter: 5 * time.Second}
	cmd := &cobra.Command{
		Use:     "hold PATH -- COMMAND [ARG...]",
		Short:   "Run a command while holding a lock",
		Long:    holdLong,
		Example: holdExample,
		Args:    cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.ArgsLenAtDash() > 1 {
				return cli.Usagef("for example: "+cli.FirstExample(cmd), "%d arguments before --, want one path", cmd.ArgsLenAtDash())
			}
			if h.delay > api.LockDelayMax {
				return cli.Usagef("", "--delay: %v exceeds %v", h.delay, api.LockDelayMax)
			}
			if h.killAfter > h.delay && !cmd.Flags().Changed("kill-after") {
				h.killAfter = h.delay
			}
			if h.killAfter > h.delay {
				return cli.Usagef("lower --kill-after or raise --delay", "--kill-after: %v exceeds the --delay of %v, so the command could outlive the lock", h.killAfter, h.delay)
			}
			return inSession(a, cmd, "lock hold", func(ctx context.Context, s *session.Session) error {
				return holdLock(ctx, a, s, h, args[0], args[1:])
			})
		},
	}
	flags := cmd.Flags()
	flags.SetInterspersed(true)
	flags.Var((*waitFlag)(h), "wait", "wait for the lock for this `duration`, or forever (default: do not wait)")
	flags.BoolVar(&h.shared, "shared", false, "acquire the lock in shared mode")
	flags.Var((*cli.DurationFlag)(&h.delay), "delay", "lock delay: a `duration` of at most 1m in which others cannot acquire the lock if this process dies without releasing it")
	flags.Var((*cli.DurationFlag)(&h.killAfter), "kill-after", "`duration` between SIGTERM and SIGKILL when the lock is lost")
	return cmd
}

// waitFlag is a duration, or forever.
type waitFlag holdFlags

func (w *waitFlag) Set(s string) error {
	if s == "forever" {
		w.forever = true
		return nil
	}
	w.forever = false
	return (*cli.DurationFlag)(&w.wait).Set(s)
}

func (w *waitFlag) Type() string { return "duration" }

func (w *waitFlag) String() string {
	if w.forever {
		return "forever"
	}
	return (*cli.DurationFlag)(&w.wait).String()
}

// holdLock acquires the lock and runs the command.
func holdLock(ctx context.Context, a *cli.App, s *session.Session, h *holdFlags, path string, command []string) error {
	l, err := h.acquire(ctx, s, path)
	if err != nil {
		if errors.Is(err, api.ErrLocked) && ctx.Err() == nil {
			return cli.FaultOfLock(err) // not the fault of the deadline of --wait
		}
		return err
	}
	code, lost, err := runUnderLock(a, s, l, h, command)
	if err != nil {
		return err
	}
	if a.JSON {
		err = a.PrintJSON(struct {
			Path      string `json:"path"`
			Sequencer string `json:"sequencer"`
			ExitCode  int    `json:"exit_code"`
			Lost      bool   `json:"lost"`
		}{path, l.Sequencer().String(), code, lost})
	}
	if lost {
		return &cli.Fault{Code: cli.ExitUnhealthy, Err: fmt.Errorf("the lock of %s was lost, and the command was stopped", path), Hint: `the lock service had no leader for too long, or this process was paused: see "stele status"`}
	}
	if code != 0 {
		return errors.Join(cli.SilentExit(code), err)
	}
	return err
}

func (h *holdFlags) acquire(ctx context.Context, s *session.Session, path string) (*session.Lock, error) {
	mode := api.Exclusive
	if h.shared {
		mode = api.Shared
	}
	o := session.LockOptions{Delay: h.delay, Try: h.wait == 0 && !h.forever}
	if h.wait > 0 && !h.forever {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, h.wait)
		defer cancel()
	}
	return s.Acquire(ctx, path, mode, o)
}

// runUnderLock runs the command while the lock is held. It returns the exit code of the command, and
// whether it was stopped because the lock was lost.
func runUnderLock(a *cli.App, s *session.Session, l *session.Lock, h *holdFlags, command []string) (code int, lost bool, err error) {
	// The command is killed when the thread that started it exits: see childAttributes.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, forwardedSignals()...)
	defer signal.Stop(signals)
	child := exec.Command(command[0], command[1:]...)
	child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
	child.Env = append(os.Environ(), sequencerVariable+"="+l.Sequencer().String())
	child.SysProcAttr = cli.ChildAttributes(!a.InTTY)
	if err := child.Start(); err != nil {
		return 0, false, &cli.Fault{Code: exitNoCommand, Err: fmt.Errorf("run %s: %w", command[0], err)}
	}
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	w := &lockMonitor{app: a, session: s, lock: l, holdFlags: h, pid: child.Process.Pid}
	if !a.InTTY {
		w.pid = -w.pid // the whole process group
	}
	err = w.watch(ended, signals)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return 0, w.stopping, err
	}
	return exitCode(child.ProcessState), w.stopping, nil
}

func exitCode(p *os.ProcessState) int {
	if status, ok := p.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return p.ExitCode()
}

// A lockMonitor watches the lock while the command runs, and stops the command before the lock can pass to
// another holder.
type lockMonitor struct {
	app       *cli.App
	session   *session.Session
	lock      *session.Lock
	holdFlags *holdFlags
	pid       int // of the command; negative for its process group
	stopping  bool
}

// watch waits until the command exits, and returns the error of its Wait.
func (w *lockMonitor) watch(ended <-chan error, signals <-chan os.Signal) error {
	lost := w.lock.Done()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		state, changed := w.session.Changed()
		switch {
		case w.stopping: // only the timer matters now, which kills
			changed = nil
		case state == session.Jeopardy:
			w.app.Notef("no contact with the leader of the lock service; the command continues for at most %s", text.Uptime(w.remaining()))
			timer.Reset(w.remaining())
		default:
			timer.Stop()
		}
		select {
		case err := <-ended:
			return err
		case s := <-signals:
			if n, ok := s.(syscall.Signal); ok {
				w.forward(n)
			}
		case <-lost:
			lost = nil
			w.stop(timer)
		case <-timer.C:
			if !w.stopping {
				w.stop(timer)
				continue
			}
			w.app.Notef("killing the command")
			_ = syscall.Kill(w.pid, syscall.SIGKILL)
		case <-changed:
		}
	}
}

// remaining returns how long the command may continue without contact to the leader.
func (w *lockMonitor) remaining() time.Duration { return max(w.lock.Until()-w.holdFlags.killAfter, 0) }

// stop sends SIGTERM to the command, and sets the timer for SIGKILL.
func (w *lockMonitor) stop(timer *time.Timer) {
	if w.stopping {
		return
	}
	w.stopping = true
	w.app.Notef("the lock is lost: stopping the command")
	_ = syscall.Kill(w.pid, syscall.SIGTERM)
	timer.Reset(w.holdFlags.killAfter)
}

// forward forwards a signal to the command. On a terminal, Ctrl-C and Ctrl-\ reach it directly, so they
// are not forwarded.
func (w *lockMonitor) forward(s syscall.Signal) {
	if w.app.InTTY && (s == syscall.SIGINT || s == syscall.SIGQUIT) {
		return
	}
	_ = syscall.Kill(w.pid, s)
}

// forwardedSignals returns the signals that are forwarded to the command.
func forwardedSignals() []os.Signal {
	return append(cli.Signals(), syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
}
