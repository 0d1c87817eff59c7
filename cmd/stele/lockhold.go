package main

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

	"github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/raftmeta/session"
)

const (
	// closeWait is how long a command waits for the leader to take back what it held.
	closeWait = 5 * time.Second
	// sequencerVariable names the sequencer in the environment of a held command.
	sequencerVariable = "STELE_LOCK_SEQUENCER"
	// exitNoCommand is what shells and env exit with for a command that cannot be run.
	exitNoCommand = 127
)

// A holder is the flags of hold.
type holder struct {
	wait      time.Duration
	forever   bool
	shared    bool
	delay     time.Duration
	killAfter time.Duration
}

func (a *app) lockHoldCommand() *cobra.Command {
	h := &holder{delay: 30 * time.Second, killAfter: 5 * time.Second}
	cmd := &cobra.Command{
		Use:   "hold PATH -- COMMAND [ARG...]",
		Short: "Run a command under a lock",
		Long: `Acquire the lock of a path, making an empty file if there is none, run a command,
and give the lock back when it has ended.

The command has the lock's sequencer in STELE_LOCK_SEQUENCER, for third parties to
check ("stele lock check") and for writes to be guarded ("stele lock set --guard").
Signals are passed on to it.

If the leader of the lock service is not heard of, the lock stays closed to others
for the --delay, which others also wait out after a crash. The command is stopped
before that is over: with SIGTERM, and with SIGKILL after --kill-after, which must not
be more. A delay below some 5s does not outlast a change of the leader.

No lock can stop a command whose holder is itself killed or stopped: what the command
has started may then run on, and so may all of it while this process is paused. Have
those who are written to check the sequencer.

The exit code is the command's: 128 and its number if a signal ended it, 127 if it
could not be run. 7 means that the lock was not got in time, 5 that it was lost and
the command stopped; other codes are those of "stele --help".`,
		Example: `  stele lock hold /locks/nightly -- ./nightly.sh --full
  stele lock hold /locks/nightly --wait 10m -- sh -c 'stele lock check "$STELE_LOCK_SEQUENCER" && ./deploy'
  stele lock hold /locks/data --shared --wait forever -- ./reader`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.ArgsLenAtDash() > 1 {
				return usagef("for example: "+firstExample(cmd), "%d words before --, want one path", cmd.ArgsLenAtDash())
			}
			if h.delay > api.LockDelayMax {
				return usagef("", "--delay: %v is more than %v", h.delay, api.LockDelayMax)
			}
			if h.killAfter > h.delay && !cmd.Flags().Changed("kill-after") {
				h.killAfter = h.delay
			}
			if h.killAfter > h.delay {
				return usagef("lower --kill-after or raise --delay", "--kill-after: %v is more than the --delay of %v: the command could outlive the lock", h.killAfter, h.delay)
			}
			return a.inSession(cmd, "lock hold", func(ctx context.Context, s *session.Session) error {
				return a.hold(ctx, s, h, args[0], args[1:])
			})
		},
	}
	flags := cmd.Flags()
	flags.SetInterspersed(true)
	flags.Var((*waitFlag)(h), "wait", "wait for the lock for this `time`, or forever (default: do not wait)")
	flags.BoolVar(&h.shared, "shared", false, "share the lock with others that share it")
	flags.Var((*durationFlag)(&h.delay), "delay", "keep the lock closed to others for this `time` when this process dies without giving it back, at most 1m")
	flags.Var((*durationFlag)(&h.killAfter), "kill-after", "`time` between SIGTERM and SIGKILL for a command whose lock is lost")
	return cmd
}

// waitFlag is a duration, or forever.
type waitFlag holder

func (w *waitFlag) Set(s string) error {
	if s == "forever" {
		w.forever = true
		return nil
	}
	w.forever = false
	return (*durationFlag)(&w.wait).Set(s)
}

func (w *waitFlag) Type() string { return "duration" }

func (w *waitFlag) String() string {
	if w.forever {
		return "forever"
	}
	return (*durationFlag)(&w.wait).String()
}

// hold acquires the lock and runs the command.
func (a *app) hold(ctx context.Context, s *session.Session, h *holder, path string, command []string) error {
	l, err := h.acquire(ctx, s, path)
	if err != nil {
		if errors.Is(err, api.ErrLocked) && ctx.Err() == nil {
			return faultOfLock(err) // and not of the context that ended the wait
		}
		return err
	}
	code, lost, err := a.runHeld(s, l, h, command)
	if err != nil {
		return err
	}
	if a.json {
		err = a.printJSON(struct {
			Path      string `json:"path"`
			Sequencer string `json:"sequencer"`
			ExitCode  int    `json:"exit_code"`
			Lost      bool   `json:"lost"`
		}{path, l.Sequencer().String(), code, lost})
	}
	if lost {
		return &fault{code: exitUnhealthy, err: fmt.Errorf("the lock of %s was lost, and the command stopped", path), hint: `no leader of the lock service was heard of, or this process was paused: see "stele status"`}
	}
	if code != 0 {
		return errors.Join(quietly(code), err)
	}
	return err
}

func (h *holder) acquire(ctx context.Context, s *session.Session, path string) (*session.Lock, error) {
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

// runHeld runs the command as long as the lock is held. It returns its exit code, and
// whether it was stopped for the loss of the lock.
func (a *app) runHeld(s *session.Session, l *session.Lock, h *holder, command []string) (code int, lost bool, err error) {
	// A command whose holder dies goes with it; that is bound to the thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, passedOn()...)
	defer signal.Stop(signals)
	child := exec.Command(command[0], command[1:]...)
	child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
	child.Env = append(os.Environ(), sequencerVariable+"="+l.Sequencer().String())
	child.SysProcAttr = heldAttributes(!a.inTTY)
	if err := child.Start(); err != nil {
		return 0, false, &fault{code: exitNoCommand, err: fmt.Errorf("run %s: %w", command[0], err)}
	}
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	w := &warder{app: a, session: s, lock: l, holder: h, pid: child.Process.Pid}
	if !a.inTTY {
		w.pid = -w.pid // its whole group
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

// A warder watches the lock while the command runs, and ends the command in time.
type warder struct {
	app      *app
	session  *session.Session
	lock     *session.Lock
	holder   *holder
	pid      int // of the command; negative: of its group
	stopping bool
}

// watch returns what the command's Wait returned.
func (w *warder) watch(ended <-chan error, signals <-chan os.Signal) error {
	lost := w.lock.Done()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		state, changed := w.session.Changed()
		switch {
		case w.stopping: // the timer kills
			changed = nil
		case state == session.Jeopardy:
			w.app.talk("the leader of the lock service is not heard of; the command goes on for at most %v", w.left().Round(time.Second))
			timer.Reset(w.left())
		default:
			timer.Stop()
		}
		select {
		case err := <-ended:
			return err
		case s := <-signals:
			if n, ok := s.(syscall.Signal); ok {
				w.pass(n)
			}
		case <-lost:
			lost = nil
			w.stop(timer)
		case <-timer.C:
			if !w.stopping {
				w.stop(timer)
				continue
			}
			w.app.talk("killing the command")
			_ = syscall.Kill(w.pid, syscall.SIGKILL)
		case <-changed:
		}
	}
}

// left is how long the command may go on if nothing is heard.
func (w *warder) left() time.Duration { return max(w.lock.Until()-w.holder.killAfter, 0) }

// stop ends the command: SIGTERM now, SIGKILL later.
func (w *warder) stop(timer *time.Timer) {
	if w.stopping {
		return
	}
	w.stopping = true
	w.app.talk("the lock is lost: stopping the command")
	_ = syscall.Kill(w.pid, syscall.SIGTERM)
	timer.Reset(w.holder.killAfter)
}

// pass hands a signal on to the command. From a terminal Ctrl-C and Ctrl-\ reach it by
// themselves.
func (w *warder) pass(s syscall.Signal) {
	if w.app.inTTY && (s == syscall.SIGINT || s == syscall.SIGQUIT) {
		return
	}
	_ = syscall.Kill(w.pid, s)
}

// passedOn lists the signals that are for the command.
func passedOn() []os.Signal {
	return append(signals(), syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
}
