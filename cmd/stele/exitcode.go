package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/node"
	"github.com/steledb/stele/raftmeta"
	"github.com/steledb/stele/table"
)

// The exit codes of every command. 2 is what a Go program exits with when it
// panics, so it is none of ours.
const (
	exitOK          = 0
	exitError       = 1
	exitUnreachable = 3
	exitUsage       = 4
	exitUnhealthy   = 5
	exitNotFound    = 6
	exitTimeout     = 7
	exitDenied      = 8
	exitQuota       = 9
	exitDiskFull    = 10
	exitConflict    = 11
)

// kinds name the exit codes in the errors of --json.
var kinds = map[int]string{
	exitError: "error", exitUnreachable: "unreachable", exitUsage: "usage", exitUnhealthy: "unhealthy", exitNotFound: "not_found",
	exitTimeout: "timeout", exitDenied: "denied", exitQuota: "quota", exitDiskFull: "disk_full", exitConflict: "conflict",
}

// A fault is an error that knows how it is reported.
type fault struct {
	code int
	hint string // what to do, empty if that is plain
	err  error
	// quiet faults set the exit code and print nothing: the command has said it.
	quiet bool
}

func (f *fault) Error() string { return f.err.Error() }
func (f *fault) Unwrap() error { return f.err }

// usagef makes the fault of arguments that cannot be.
func usagef(hint, format string, args ...any) error {
	return &fault{code: exitUsage, hint: hint, err: fmt.Errorf(format, args...)}
}

// notFoundf makes the fault of something that is not there.
func notFoundf(hint, format string, args ...any) error {
	return &fault{code: exitNotFound, hint: hint, err: fmt.Errorf(format, args...)}
}

// conflictf makes the fault of a condition that did not hold, so that nothing was changed.
func conflictf(hint, format string, args ...any) error {
	return &fault{code: exitConflict, hint: hint, err: fmt.Errorf(format, args...)}
}

// withHint gives err a hint of its own, keeping its exit code.
func withHint(err error, hint string) error {
	if err == nil {
		return nil
	}
	f := *faultOf(err)
	f.hint, f.err = hint, err
	return &f
}

// quietly ends the command with an exit code and no further word.
func quietly(code int) error {
	return &fault{code: code, err: errors.New("done"), quiet: true}
}

// faultOf finds out how err is reported.
func faultOf(err error) *fault {
	var f *fault
	if errors.As(err, &f) {
		return &fault{code: f.code, hint: f.hint, err: err, quiet: f.quiet}
	}
	for _, find := range []func(error) *fault{faultOfLock, faultOfIdentity, faultOfQuota, faultOfCall, faultOfName, faultOfInput, faultOfSystem} {
		if f := find(err); f != nil {
			if f.err == nil {
				f.err = err
			}
			return f
		}
	}
	return &fault{code: exitError, err: err}
}

// faultOfCall knows the errors of calls that did not get through or whose outcome
// is not known.
func faultOfCall(err error) *fault {
	var away *client.UnreachableError
	switch {
	case errors.Is(err, client.ErrAmbiguous):
		f := &fault{code: exitError, hint: ambiguousHint(err)}
		if errors.Is(err, context.DeadlineExceeded) {
			f.code = exitTimeout
		}
		return f
	case errors.Is(err, context.Canceled):
		return &fault{code: exitError, err: errors.New("interrupted")}
	case errors.As(err, &away):
		return &fault{
			code: exitUnreachable,
			hint: `is "stele serve" running there? try "systemctl status stele" or --addr`,
			err:  fmt.Errorf("cannot reach %s: %s", away.Addr, networkReason(away.Err)),
		}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return &fault{code: exitTimeout, hint: "give it more time with --timeout", err: errors.New("timed out: " + err.Error())}
	case errors.Is(err, client.ErrDiskFull):
		return &fault{code: exitDiskFull, hint: "free or add disk space on the node; reads go on, and writes come back by themselves"}
	case errors.Is(err, client.ErrOverloaded):
		return &fault{code: exitUnhealthy, hint: `try again in a moment; "stele status" shows what the node is busy with`}
	case errors.Is(err, client.ErrNotServing):
		return &fault{code: exitUnhealthy, hint: `"stele status" tells which tablets nobody serves, and why; a node that is starting or stopping serves none`}
	case errors.Is(err, client.ErrUnavailable):
		return &fault{code: exitUnhealthy, hint: `the node is starting or stopping, or most voters of the lock service are down: see "stele status" and "stele node list"`}
	case errors.Is(err, client.ErrCorrupt):
		return &fault{code: exitUnhealthy, hint: `damaged data is never served; stop the node and run "stele check" on its data folders`}
	}
	return nil
}

// ambiguousHint tells where to look what came of a change.
func ambiguousHint(err error) string {
	var unknown *client.AmbiguousError
	if errors.As(err, &unknown) && (unknown.Method == api.MethodDrainNode || unknown.Method == api.MethodRemoveNode) {
		return `look with "stele node list" whether it took effect`
	}
	if errors.As(err, &unknown) && slices.Contains([]string{api.MethodSplitTablet, api.MethodMoveTablet, api.MethodMergeTablets}, unknown.Method) {
		return `look with "stele tablet list" whether it took effect`
	}
	if errors.As(err, &unknown) && slices.Contains([]string{api.MethodGrant, api.MethodRevoke, api.MethodRevokeUser, api.MethodRemoveUser, api.MethodDisableUser, api.MethodEnableUser}, unknown.Method) {
		return "make it again: only when it is done do all nodes know of it"
	}
	return `look with "stele get" or "stele table describe" whether it took effect`
}

// networkReason strips the layers that net puts around the cause.
func networkReason(err error) string {
	var dns *net.DNSError
	var number syscall.Errno
	switch {
	case errors.As(err, &dns):
		return dns.Err
	case errors.As(err, &number):
		return number.Error()
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return "no answer in time"
	}
	return err.Error()
}

// faultOfName knows the errors about things that are not there, or are already.
func faultOfName(err error) *fault {
	var family *table.NoFamilyError
	switch {
	case errors.Is(err, client.ErrNoTable):
		return &fault{code: exitNotFound, hint: `"stele table list" shows the tables, "stele table create" makes one`}
	case errors.As(err, &family) && family.Table != "" && family.Family != "":
		return &fault{code: exitNotFound, hint: fmt.Sprintf(`"stele table describe %[1]s" shows its families, "stele family set %[1]s %[2]s" adds this one`, family.Table, family.Family)}
	case errors.Is(err, client.ErrNoFamily):
		return &fault{code: exitNotFound, hint: `"stele table describe" shows the families of a table`}
	case errors.Is(err, client.ErrTableExists):
		return &fault{code: exitError, hint: `"stele table describe" shows it, "stele family set" changes it`}
	case errors.Is(err, client.ErrConflict):
		return &fault{code: exitError, hint: "somebody else changed the table just now: look at it and try again"}
	case errors.Is(err, client.ErrNoBlob):
		return &fault{code: exitNotFound, hint: `"stele blob ls" shows the blobs with their ids`}
	case errors.Is(err, client.ErrNoUser):
		return &fault{code: exitNotFound, hint: `"stele user list" shows the users and their tokens, "stele user add" makes one`}
	case errors.Is(err, client.ErrNoGrant):
		return &fault{code: exitNotFound, hint: `"stele acl list" shows the grants; one on a table says nothing of one on a family, nor the other way round`}
	case errors.Is(err, client.ErrLastAdmin):
		return &fault{code: exitError, hint: `make somebody else an administrator first, who has a credential: "stele user add USER", "stele acl grant USER admin --cluster". ` +
			`If all are lost: as root on the master's host "stele user add USER --credential SECURITY_DIR/node.pem"`}
	case errors.Is(err, client.ErrNoIssuer):
		return &fault{code: exitUnhealthy, hint: "a voter gets the authority's key soon after its vote; if it stays so, put ca.key back from a copy"}
	case errors.Is(err, client.ErrOpenCluster):
		return &fault{code: exitError, hint: `a cluster that has data stays open: found one with "stele init --data-dir DIR" and "stele serve --data-dir DIR", and copy the data there`}
	case errors.Is(err, client.ErrNodeNotFound):
		return &fault{code: exitNotFound, hint: `"stele node list" shows the nodes with their ids`}
	case errors.Is(err, node.ErrRemoved):
		return &fault{code: exitNotFound}
	case errors.Is(err, client.ErrNodeInUse):
		return &fault{code: exitError, hint: `"stele node drain" it and stop it first; --force removes it all the same, with all that only it holds`}
	case errors.Is(err, client.ErrSystemTable):
		return &fault{code: exitError, hint: `"stele tablet list" shows what METADATA says`}
	case errors.Is(err, client.ErrNoTablet):
		return &fault{code: exitNotFound, hint: `"stele tablet list" shows the tablets with their ids`}
	case errors.Is(err, client.ErrBadSplit):
		return &fault{code: exitError, hint: `"stele tablet list" shows where tablets end; a tablet of one row cannot be split`}
	case errors.Is(err, client.ErrTabletBusy):
		return &fault{code: exitError, hint: "wait until that is over, and try again"}
	case errors.Is(err, client.ErrNodeNotAlive):
		return &fault{code: exitError, hint: `"stele node list" shows which nodes are alive and do not drain`}
	case errors.Is(err, client.ErrStaleEpoch):
		return &fault{code: exitError, hint: `there is another master now: see "stele node list"`}
	}
	return nil
}

// faultOfInput knows the errors about what was given.
func faultOfInput(err error) *fault {
	for _, bad := range []error{
		table.ErrLimit, table.ErrBadName, table.ErrBadTimestamp, table.ErrBadFilter, table.ErrBadRowKey,
		table.ErrBadSpec, table.ErrBadGCPolicy, table.ErrBadSchema, table.ErrFamilyExists, table.ErrNoGroup, table.ErrNoMutations, table.ErrNoRules,
	} {
		if errors.Is(err, bad) {
			return &fault{code: exitUsage, hint: inputHint(bad)}
		}
	}
	switch {
	case errors.Is(err, api.ErrNotNumber):
		return &fault{code: exitError, hint: "a counter is 8 bytes that only \"stele incr\" should write; use another column"}
	case errors.Is(err, client.ErrRowTooLarge):
		return &fault{code: exitError, hint: "read less of it: name columns, or use --family, --column or --versions"}
	}
	return nil
}

func inputHint(bad error) string {
	switch bad {
	case table.ErrBadSpec, table.ErrBadGCPolicy:
		return `such as "contents:versions=3,group=pages,compression=zstd"; see "stele help table create"`
	case table.ErrBadFilter:
		return "patterns are RE2 regular expressions and match whole names: .*cnn.* finds cnn anywhere"
	}
	return ""
}

// faultOfSystem knows the errors of the machine that the command runs on.
func faultOfSystem(err error) *fault {
	var keys *node.MasterKeyError
	switch {
	case errors.Is(err, blobfs.ErrMasterKey):
		return &fault{code: exitUsage, hint: `name the file of its master keys with --encryption-key-file, or a command with --encryption-key-command`}
	case errors.Is(err, blobfs.ErrNotEncrypted):
		return &fault{code: exitUsage, hint: `to encrypt the node's data, "stele node drain" it, stop it, and start it with an empty data folder; or leave the key out`}
	case errors.As(err, &keys) && keys.Source == "command" && (errors.As(err, new(*exec.ExitError)) || errors.Is(err, fs.ErrPermission)):
		return &fault{code: exitUsage, hint: `run the command as the node's user; under systemd, ExecPaths= of the unit must name sh, the command and their libraries`}
	case errors.As(err, &keys) && errors.Is(err, fs.ErrPermission):
		return &fault{code: exitUsage, hint: "the node's user must be able to read the file"}
	case errors.As(err, &keys):
		return &fault{code: exitUsage, hint: `a line for each key, of 64 hexadecimal digits, the current one first; "openssl rand -hex 32" makes one`}
	case errors.Is(err, vfs.ErrLocked):
		return &fault{code: exitError, hint: "a node is using the folder: stop it first, or give another folder"}
	case errors.Is(err, raftmeta.ErrNothingToRecover):
		return &fault{code: exitError, hint: `the node has no part in a group yet: "stele raft status" shows who votes`}
	case errors.Is(err, syscall.ENOSPC):
		return &fault{code: exitDiskFull, hint: "free some disk space"}
	case errors.Is(err, syscall.EADDRINUSE):
		return &fault{code: exitError, hint: `another program has the port, perhaps a node: try "stele status", or --listen, --gossip and --http with other ports`}
	case errors.Is(err, fs.ErrNotExist):
		return &fault{code: exitNotFound}
	case errors.Is(err, fs.ErrPermission):
		return &fault{code: exitError, hint: "the user that runs this command may not do that"}
	}
	return nil
}

// report prints err as an "error:" and, if there is something to be done, a "hint:".
func (a *app) report(err error) int {
	if err == nil {
		return exitOK
	}
	if ps := problemsOf(err); ps != nil {
		return a.reportProblems(ps)
	}
	return a.reportOne(err)
}

// hint says what to do.
func (a *app) hint(text string) {
	fmt.Fprintf(a.err, "%s %s\n", a.paint(a.errTTY, styleHint, "hint:"), text)
}

func (a *app) reportOne(err error) int {
	f := faultOf(err)
	if f.quiet {
		return f.code
	}
	text := strings.TrimRight(escapeLines(f.err.Error()), " ")
	if f.code == exitTimeout && errors.Is(err, context.DeadlineExceeded) {
		text += " (asked " + a.addr + ")"
	}
	if a.json {
		return a.reportJSON(f, text)
	}
	priority := ""
	if inJournal() {
		priority = "<3>" // the journal takes it for the line's, and away
	}
	fmt.Fprintf(a.err, "%s%s %s\n", priority, a.paint(a.errTTY, styleError, "error:"), text)
	if f.hint != "" {
		a.hint(f.hint)
	}
	return f.code
}

// errorJSON is an error as --json prints it to standard error, one a line.
type errorJSON struct {
	Error    string `json:"error"`
	Kind     string `json:"kind"` // what the exit code stands for: see kinds
	ExitCode int    `json:"exit_code"`
	Hint     string `json:"hint,omitempty"`
}

func (a *app) reportJSON(f *fault, text string) int {
	enc := json.NewEncoder(a.err)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(errorJSON{text, orElse(kinds[f.code], kinds[exitError]), f.code, f.hint}) // nowhere is left to report to
	return f.code
}
