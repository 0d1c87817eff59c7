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
	"github.com/steledb/stele/node/removal"
	"github.com/steledb/stele/raftmeta"
	"github.com/steledb/stele/table"
)

// The exit codes of all commands. 2 is not used: a Go program that panics exits with it.
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

// kinds are the names of the exit codes in --json errors.
var kinds = map[int]string{
	exitError: "error", exitUnreachable: "unreachable", exitUsage: "usage", exitUnhealthy: "unhealthy", exitNotFound: "not_found",
	exitTimeout: "timeout", exitDenied: "denied", exitQuota: "quota", exitDiskFull: "disk_full", exitConflict: "conflict",
}

// A fault is an error with its exit code and a hint for the user.
type fault struct {
	code int
	hint string // the next step; empty if the error makes it obvious
	err  error
	// quiet faults only set the exit code: the command has printed the error already.
	quiet bool
}

func (f *fault) Error() string { return f.err.Error() }
func (f *fault) Unwrap() error { return f.err }

// usagef returns a fault for invalid arguments.
func usagef(hint, format string, args ...any) error {
	return &fault{code: exitUsage, hint: hint, err: fmt.Errorf(format, args...)}
}

// notFoundf returns a fault for an object that does not exist.
func notFoundf(hint, format string, args ...any) error {
	return &fault{code: exitNotFound, hint: hint, err: fmt.Errorf(format, args...)}
}

// conflictf returns a fault for a condition that did not hold, so that nothing was changed.
func conflictf(hint, format string, args ...any) error {
	return &fault{code: exitConflict, hint: hint, err: fmt.Errorf(format, args...)}
}

// withHint returns err with another hint and the same exit code.
func withHint(err error, hint string) error {
	if err == nil {
		return nil
	}
	f := *faultOf(err)
	f.hint, f.err = hint, err
	return &f
}

// silentExit returns an error that sets the exit code and prints nothing.
func silentExit(code int) error {
	return &fault{code: code, err: errors.New("done"), quiet: true}
}

// faultOf returns err as a fault. Unknown errors get exitError and no hint.
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

// faultOfCall maps errors of calls that failed in transport, were rejected by an unavailable node, or
// have an unknown outcome.
func faultOfCall(err error) *fault {
	var unreachable *client.UnreachableError
	switch {
	case errors.Is(err, client.ErrAmbiguous):
		f := &fault{code: exitError, hint: ambiguousHint(err)}
		if errors.Is(err, context.DeadlineExceeded) {
			f.code = exitTimeout
		}
		return f
	case errors.Is(err, context.Canceled):
		return &fault{code: exitError, err: errors.New("interrupted")}
	case errors.As(err, &unreachable):
		return &fault{
			code: exitUnreachable,
			hint: `is "stele serve" running there? try "systemctl status stele" or --addr`,
			err:  fmt.Errorf("cannot reach %s: %s", unreachable.Addr, networkReason(unreachable.Err)),
		}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return &fault{code: exitTimeout, hint: "raise --timeout", err: errors.New("timed out: " + err.Error())}
	case errors.Is(err, client.ErrDiskFull):
		return &fault{code: exitDiskFull, hint: "free or add disk space on the node; reads continue, and writes resume when there is space"}
	case errors.Is(err, client.ErrOverloaded):
		return &fault{code: exitUnhealthy, hint: `retry in a moment; "stele status" shows the load of the node`}
	case errors.Is(err, client.ErrNotServing):
		return &fault{code: exitUnhealthy, hint: `"stele status" shows which tablets are not served, and why; a node that is starting or stopping serves none`}
	case errors.Is(err, client.ErrUnavailable):
		return &fault{code: exitUnhealthy, hint: `the node is starting or stopping, or most voters of the lock service are down: see "stele status" and "stele node list"`}
	case errors.Is(err, client.ErrCorrupt):
		return &fault{code: exitUnhealthy, hint: `stop the node and run "stele check" on its data folders; corrupt data is never served`}
	}
	return nil
}

// ambiguousHint returns how to find out whether a change took effect.
func ambiguousHint(err error) string {
	var unknown *client.AmbiguousError
	if errors.As(err, &unknown) && (unknown.Method == api.MethodDrainNode || unknown.Method == api.MethodRemoveNode) {
		return `check by "stele node list" whether it took effect`
	}
	if errors.As(err, &unknown) && slices.Contains([]string{api.MethodSplitTablet, api.MethodMoveTablet, api.MethodMergeTablets}, unknown.Method) {
		return `check by "stele tablet list" whether it took effect`
	}
	if errors.As(err, &unknown) && slices.Contains([]string{api.MethodGrant, api.MethodRevoke, api.MethodRevokeUser, api.MethodRemoveUser, api.MethodDisableUser, api.MethodEnableUser}, unknown.Method) {
		return "retry: the change takes effect cluster-wide only when this command succeeds"
	}
	return `check by "stele get" or "stele table describe" whether it took effect`
}

// networkReason returns the cause of a network error, without the context that package net adds.
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

// faultOfName maps errors about objects that do not exist, exist already, or are in the wrong state.
func faultOfName(err error) *fault {
	var family *table.NoFamilyError
	switch {
	case errors.Is(err, client.ErrNoTable):
		return &fault{code: exitNotFound, hint: `"stele table list" shows the tables, "stele table create" creates one`}
	case errors.As(err, &family) && family.Table != "" && family.Family != "":
		return &fault{code: exitNotFound, hint: fmt.Sprintf(`"stele table describe %[1]s" shows its families, "stele family set %[1]s %[2]s" adds this one`, family.Table, family.Family)}
	case errors.Is(err, client.ErrNoFamily):
		return &fault{code: exitNotFound, hint: `"stele table describe" shows the families of a table`}
	case errors.Is(err, client.ErrTableExists):
		return &fault{code: exitError, hint: `"stele table describe" shows it, "stele family set" changes it`}
	case errors.Is(err, client.ErrConflict):
		return &fault{code: exitError, hint: `the table was changed concurrently: check "stele table describe" and retry`}
	case errors.Is(err, client.ErrNoBlob):
		return &fault{code: exitNotFound, hint: `"stele blob ls" shows the blobs with their ids`}
	case errors.Is(err, client.ErrNoUser):
		return &fault{code: exitNotFound, hint: `"stele user list" shows the users and their tokens, "stele user add" creates one`}
	case errors.Is(err, client.ErrNoGrant):
		return &fault{code: exitNotFound, hint: `"stele acl list" shows the grants; grants on a table and on its families are separate`}
	case errors.Is(err, client.ErrLastAdmin):
		return &fault{code: exitError, hint: `first create another administrator: "stele user add USER", "stele acl grant USER admin --cluster". ` +
			`If all credentials are lost, run as root on the master's host: "stele user add USER --credential SECURITY_DIR/node.pem"`}
	case errors.Is(err, client.ErrNoIssuer):
		return &fault{code: exitUnhealthy, hint: "a node gets the authority's key soon after it becomes a voter; if the error persists, restore ca.key from a backup"}
	case errors.Is(err, client.ErrOpenCluster):
		return &fault{code: exitError, hint: `access control cannot be added to a cluster with data: create a new one with "stele init --data-dir DIR" and "stele serve --data-dir DIR", and copy the data`}
	case errors.Is(err, client.ErrNodeNotFound):
		return &fault{code: exitNotFound, hint: `"stele node list" shows the nodes with their ids`}
	case errors.Is(err, removal.ErrRemoved):
		return &fault{code: exitNotFound}
	case errors.Is(err, client.ErrNodeInUse):
		return &fault{code: exitError, hint: `first drain it by "stele node drain" and stop it; --force removes it at once, and loses data that only this node holds`}
	case errors.Is(err, client.ErrSystemTable):
		return &fault{code: exitError, hint: `"stele tablet list" shows the content of METADATA`}
	case errors.Is(err, client.ErrNoTablet):
		return &fault{code: exitNotFound, hint: `"stele tablet list" shows the tablets with their ids`}
	case errors.Is(err, client.ErrBadSplit):
		return &fault{code: exitError, hint: `"stele tablet list" shows where tablets end; a tablet of one row cannot be split`}
	case errors.Is(err, client.ErrTabletBusy):
		return &fault{code: exitError, hint: "retry when the change in progress has finished"}
	case errors.Is(err, client.ErrNodeNotAlive):
		return &fault{code: exitError, hint: `"stele node list" shows which nodes are alive and not draining`}
	case errors.Is(err, client.ErrStaleEpoch):
		return &fault{code: exitError, hint: `the cluster has another master now: see "stele node list", and retry`}
	}
	return nil
}

// faultOfInput maps errors about arguments.
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
		return &fault{code: exitError, hint: "a counter is a value of 8 bytes written by \"stele incr\"; use another column"}
	case errors.Is(err, client.ErrRowTooLarge):
		return &fault{code: exitError, hint: "read less of the row: name columns, or use --family, --column or --versions"}
	}
	return nil
}

func inputHint(bad error) string {
	switch bad {
	case table.ErrBadSpec, table.ErrBadGCPolicy:
		return `such as "contents:versions=3,group=pages,compression=zstd"; see "stele help table create"`
	case table.ErrBadFilter:
		return "patterns are RE2 regular expressions that match the whole name: .*cnn.* matches cnn anywhere"
	}
	return ""
}

// faultOfSystem maps errors of the local system.
func faultOfSystem(err error) *fault {
	var keys *node.MasterKeyError
	switch {
	case errors.Is(err, blobfs.ErrMasterKey):
		return &fault{code: exitUsage, hint: `name the file of the node's master keys with --encryption-key-file, or a command with --encryption-key-command`}
	case errors.Is(err, blobfs.ErrNotEncrypted):
		return &fault{code: exitUsage, hint: `omit the key; or, to encrypt the node's data, drain it by "stele node drain", stop it, and start it with an empty data folder`}
	case errors.As(err, &keys) && keys.Source == "command" && (errors.As(err, new(*exec.ExitError)) || errors.Is(err, fs.ErrPermission)):
		return &fault{code: exitUsage, hint: `run the command as the node's user; under systemd, ExecPaths= of the unit must name sh, the command and their libraries`}
	case errors.As(err, &keys) && errors.Is(err, fs.ErrPermission):
		return &fault{code: exitUsage, hint: "the node's user must be able to read the file"}
	case errors.As(err, &keys):
		return &fault{code: exitUsage, hint: `want a line of 64 hexadecimal digits for each key, the current one first; create a key by "openssl rand -hex 32"`}
	case errors.Is(err, vfs.ErrLocked):
		return &fault{code: exitError, hint: "a node is using the folder: stop it first, or name another folder"}
	case errors.Is(err, raftmeta.ErrNothingToRecover):
		return &fault{code: exitError, hint: `the node is not a member of the Raft group: "stele raft status" shows the voters`}
	case errors.Is(err, syscall.ENOSPC):
		return &fault{code: exitDiskFull, hint: "free some disk space"}
	case errors.Is(err, syscall.EADDRINUSE):
		return &fault{code: exitError, hint: `another program uses the port, perhaps a node: try "stele status", or other ports for --listen, --gossip and --http`}
	case errors.Is(err, fs.ErrNotExist):
		return &fault{code: exitNotFound}
	case errors.Is(err, fs.ErrPermission):
		return &fault{code: exitError, hint: "the user that runs this command lacks the permission"}
	}
	return nil
}

// report prints err as "error:" and its hint as "hint:", and returns the exit code.
func (a *app) report(err error) int {
	if err == nil {
		return exitOK
	}
	if ps := problemsOf(err); ps != nil {
		return a.reportProblems(ps)
	}
	return a.reportOne(err)
}

// hint prints a hint on standard error.
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
		text += " (address " + a.addr + ")"
	}
	if a.json {
		return a.reportJSON(f, text)
	}
	priority := ""
	if inJournal() {
		priority = "<3>" // the journal takes this prefix as the line's priority, and strips it
	}
	fmt.Fprintf(a.err, "%s%s %s\n", priority, a.paint(a.errTTY, styleError, "error:"), text)
	if f.hint != "" {
		a.hint(f.hint)
	}
	return f.code
}

// errorJSON is the --json form of an error on standard error.
type errorJSON struct {
	Error    string `json:"error"`
	Kind     string `json:"kind"` // the name of the exit code: see kinds
	ExitCode int    `json:"exit_code"`
	Hint     string `json:"hint,omitempty"`
}

func (a *app) reportJSON(f *fault, text string) int {
	enc := json.NewEncoder(a.err)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(errorJSON{text, orElse(kinds[f.code], kinds[exitError]), f.code, f.hint}) // an error cannot be reported anywhere
	return f.code
}
