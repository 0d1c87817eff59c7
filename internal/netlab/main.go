package netlab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// insideEnv marks the process that runs in the namespaces.
const insideEnv = "STELE_NETLAB_INSIDE"

// Inside reports whether this process is, or was started by, the one that Main runs in separate
// namespaces.
func Inside() bool { return os.Getenv(insideEnv) != "" }

// Main runs the tests of a package in separate namespaces and returns the exit code. TestMain calls
// it. Outside, where it starts the binary again and waits, the machine's own network is available;
// anything the tests need from it must be fetched there.
func Main(m *testing.M) int {
	if !Inside() {
		return runInside()
	}
	if err := prepare(); err != nil {
		fmt.Fprintf(os.Stderr, "netlab: %v\n", err)
		return 1
	}
	return m.Run()
}

// runInside runs this binary again as the first process of new namespaces and returns its exit
// code.
func runInside() int {
	// The kernel kills the child when the *thread* that started it ends.
	runtime.LockOSThread()
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT)
	// Root stays root, to keep access to disks that other users lack.
	cmd, err := startInside(os.Getuid() != 0)
	if err != nil && os.Getuid() == 0 {
		var again error
		if cmd, again = startInside(true); again != nil {
			err = errors.Join(err, again)
		} else {
			err = nil
		}
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, `netlab: this machine does not allow the tests to create a network: %v
These tests need Linux with user namespaces for everyone (sysctl user.max_user_namespaces
above 0, kernel.apparmor_restrict_unprivileged_userns=0 where it exists), or root with
CAP_SYS_ADMIN (in a container: --privileged, or --cap-add SYS_ADMIN --security-opt
seccomp=unconfined).
`, err)
		return 1
	}
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s) // on error it has ended, which Wait reports
		}
	}()
	err = cmd.Wait()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit) && exit.Exited():
		return exit.ExitCode()
	}
	fmt.Fprintf(os.Stderr, "netlab: %v\n", err)
	return 1
}

func startInside(newUser bool) (*exec.Cmd, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(exe, os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
		// A PID namespace ends with its first process.
		Pdeathsig: syscall.SIGKILL,
	}
	if newUser {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return cmd, nil
}

// prepare sets up the namespaces for labs.
func prepare() error {
	if _, err := exec.LookPath("ip"); err != nil {
		return fmt.Errorf("%w: install iproute2 (apt-get install iproute2)", err)
	}
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private to the namespace: %w", err)
	}
	// Show processes under their ids in this namespace, as strace -p requires. Some
	// containers forbid it, which most tests do not notice.
	_ = syscall.Mount("proc", "/proc", "proc", 0, "")
	if err := ip(nil, "link set lo up"); err != nil {
		return fmt.Errorf("this machine does not allow the tests to create a network: %w", err)
	}
	return nil
}

// ip runs iproute2 commands, all in one process, in the network namespace of the calling thread.
// files become its descriptors 3 and up.
func ip(files []*os.File, commands ...string) error {
	cmd := exec.Command("ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join(commands, "\n") + "\n")
	cmd.ExtraFiles = files
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(commands, "; "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
