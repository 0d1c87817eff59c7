package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/health"
	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/node/identity"
	"github.com/steledb/stele/node/masterkeys"
	"github.com/steledb/stele/node/removal"
	"github.com/steledb/stele/raftmeta"
	"github.com/steledb/stele/table"
)

// The exit codes of all commands. 2 is not used: a Go program that panics exits with it.
const (
	ExitOK          = 0
	ExitError       = 1
	exitUnreachable = 3
	ExitUsage       = 4
	ExitUnhealthy   = 5
	ExitNotFound    = 6
	ExitTimeout     = 7
	ExitDenied      = 8
	exitQuota       = 9
	ExitDiskFull    = 10
	ExitConflict    = 11
)

// kinds are the names of the exit codes in --json errors.
var kinds = map[int]string{
	ExitError: "error", exitUnreachable: "unreachable", ExitUsage: "usage", ExitUnhealthy: "unhealthy", ExitNotFound: "not_found",
	ExitTimeout: "timeout", ExitDenied: "denied", exitQuota: "quota", ExitDiskFull: "disk_full", ExitConflict: "conflict",
}

// A Fault is an error with its exit code and a hint for the user.
type Fault struct {
	Code int
	Hint string // the next step; empty if the error makes it obvious
	Err  error
	// quiet faults only set the exit code: the command has printed the error already.
	quiet bool
}

func (f *Fault) Error() string { return f.Err.Error() }
func (f *Fault) Unwrap() error { return f.Err }

// Usagef returns a fault for invalid arguments.
func Usagef(hint, format string, args ...any) error {
	return &Fault{Code: ExitUsage, Hint: hint, Err: fmt.Errorf(format, args...)}
}

// NotFoundf returns a fault for an object that does not exist.
func NotFoundf(hint, format string, args ...any) error {
	return &Fault{Code: ExitNotFound, Hint: hint, Err: fmt.Errorf(format, args...)}
}

// Conflictf returns a fault for a condition that did not hold, so that nothing was changed.
func Conflictf(hint, format string, args ...any) error {
	return &Fault{Code: ExitConflict, Hint: hint, Err: fmt.Errorf(format, args...)}
}

// WithHint returns err with another hint and the same exit code.
func WithHint(err error, hint string) error {
	if err == nil {
		return nil
	}
	f := *FaultOf(err)
	f.Hint, f.Err = hint, err
	return &f
}

// SilentExit returns an error that sets the exit code and prints nothing.
func SilentExit(code int) error {
	return &Fault{Code: code, Err: errors.New("done"), quiet: true}
}

// IsSilentExit reports whether an error only sets the exit code.
func IsSilentExit(err error) bool { return err != nil && FaultOf(err).quiet }

// FaultOf returns err as a fault. Unknown errors get ExitError and no hint.
func FaultOf(err error) *Fault {
	var f *Fault
	if errors.As(err, &f) {
		return &Fault{Code: f.Code, Hint: f.Hint, Err: err, quiet: f.quiet}
	}
	for _, find := range []func(error) *Fault{FaultOfLock, FaultOfIdentity, faultOfQuota, faultOfCall, faultOfView, faultOfName, faultOfInput, faultOfSystem} {
		if f := find(err); f != nil {
			if f.Err == nil {
				f.Err = err
			}
			return f
		}
	}
	return &Fault{Code: ExitError, Err: err}
}

// faultOfCall maps errors of calls that failed in transport, were rejected by an unavailable node, or
// have an unknown outcome.
func faultOfCall(err error) *Fault {
	var unreachable *client.UnreachableError
	switch {
	case errors.Is(err, client.ErrAmbiguous):
		f := &Fault{Code: ExitError, Hint: ambiguousHint(err)}
		if errors.Is(err, context.DeadlineExceeded) {
			f.Code = ExitTimeout
		}
		return f
	case errors.Is(err, context.Canceled):
		return &Fault{Code: ExitError, Err: errors.New("interrupted")}
	case errors.As(err, &unreachable):
		return &Fault{
			Code: exitUnreachable,
			Hint: `is "stele serve" running there? try "systemctl status stele" or --addr`,
			Err:  fmt.Errorf("cannot reach %s: %s", unreachable.Addr, networkReason(unreachable.Err)),
		}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return &Fault{Code: ExitTimeout, Hint: "raise --timeout", Err: errors.New("timed out: " + err.Error())}
	case errors.Is(err, client.ErrDiskFull):
		return &Fault{Code: ExitDiskFull, Hint: "free or add disk space on the node; reads continue, and writes resume when there is space"}
	case errors.Is(err, client.ErrOverloaded):
		return &Fault{Code: ExitUnhealthy, Hint: `retry in a moment; "stele status" shows the load of the node`}
	case errors.Is(err, client.ErrNotServing):
		return &Fault{Code: ExitUnhealthy, Hint: `"stele status" shows which tablets are not served, and why; a node that is starting or stopping serves none`}
	case api.NoLeader(err):
		return &Fault{Code: ExitUnhealthy, Hint: `"stele status" works without a leader; in a cluster with access control run it as root on a node's host, with --credential SECURITY_DIR/node.pem`}
	case errors.Is(err, client.ErrUnavailable):
		return &Fault{Code: ExitUnhealthy, Hint: `the node is starting or stopping, or most voters of the lock service are down: see "stele status" and "stele node list"`}
	case errors.Is(err, client.ErrCorrupt):
		return &Fault{Code: ExitUnhealthy, Hint: `stop the node and run "stele check" on its data folders; corrupt data is never served`}
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
	if errors.As(err, &unknown) && slices.Contains([]string{api.MethodGrant, api.MethodRevoke, api.MethodSetGrants, api.MethodRevokeUser, api.MethodRemoveUser, api.MethodDisableUser, api.MethodEnableUser}, unknown.Method) {
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
func faultOfName(err error) *Fault {
	var family *table.NoFamilyError
	switch {
	case errors.Is(err, client.ErrNoTable):
		return &Fault{Code: ExitNotFound, Hint: `"stele table list" shows the tables, "stele table create" creates one`}
	case errors.As(err, &family) && family.Table != "" && family.Family != "":
		return &Fault{Code: ExitNotFound, Hint: fmt.Sprintf(`"stele table describe %[1]s" shows its families, "stele family set %[1]s %[2]s" adds this one`, family.Table, family.Family)}
	case errors.Is(err, client.ErrNoFamily):
		return &Fault{Code: ExitNotFound, Hint: `"stele table describe" shows the families of a table`}
	case errors.Is(err, api.ErrNoChangeStream):
		return &Fault{Code: ExitError, Hint: `"stele table stream TABLE --keep 7d" begins one; changes made before are not in it`}
	case errors.Is(err, client.ErrTableExists):
		return &Fault{Code: ExitError, Hint: `"stele table describe" shows it, "stele family set" changes it`}
	case errors.Is(err, client.ErrAggregate):
		return &Fault{Code: ExitError, Hint: `"stele add" adds to cells of aggregate families, "stele put" and "stele incr" set those of others`}
	case errors.Is(err, client.ErrProtected):
		return &Fault{Code: ExitError, Hint: `"stele table protect TABLE --off" ends the protection of a table, "stele table protect TABLE/VIEW --off" that of a view`}
	case errors.Is(err, client.ErrReadOnly):
		return &Fault{Code: ExitError, Hint: `it may have been moved to another cluster; "stele table read-only TABLE --off" lets it accept changes again`}
	case errors.Is(err, client.ErrConflict):
		return &Fault{Code: ExitError, Hint: `the table was changed concurrently: check "stele table describe" and retry`}
	case errors.Is(err, client.ErrNoBackup):
		return &Fault{Code: ExitNotFound, Hint: `"stele backup list" shows the backups with their ids`}
	case errors.Is(err, health.ErrNoJob):
		return &Fault{Code: ExitNotFound, Hint: `"stele job list" shows the jobs; those that have ended are gone`}
	case errors.Is(err, api.ErrNoCluster):
		return &Fault{Code: ExitNotFound, Hint: `"stele cluster list" shows the clusters`}
	case errors.Is(err, api.ErrNoReplication):
		return &Fault{Code: ExitNotFound, Hint: `"stele replication list" shows the replications`}
	case errors.Is(err, client.ErrBackupNotMade):
		return &Fault{Code: ExitError, Hint: `"stele backup describe" shows the state of a backup`}
	case errors.Is(err, client.ErrNoBlob):
		return &Fault{Code: ExitNotFound, Hint: `"stele blob ls" shows the blobs with their ids`}
	case errors.Is(err, client.ErrNoUser):
		return &Fault{Code: ExitNotFound, Hint: `"stele user list" shows the users and their tokens, "stele user add" creates one`}
	case errors.Is(err, client.ErrNoGrant):
		return &Fault{Code: ExitNotFound, Hint: `"stele acl list" shows the grants; grants on a table and on its families are separate`}
	case errors.Is(err, client.ErrLastAdmin):
		return &Fault{Code: ExitError, Hint: `first create another administrator: "stele user add USER", "stele acl grant USER admin --cluster". ` +
			`If all credentials are lost, run as root on the master's host: "stele user add USER --credential SECURITY_DIR/node.pem"`}
	case errors.Is(err, client.ErrNoIssuer):
		return &Fault{Code: ExitUnhealthy, Hint: "a node gets the authority's key soon after it becomes a voter; if the error persists, restore ca.key from a backup"}
	case errors.Is(err, client.ErrOpenCluster):
		return &Fault{Code: ExitError, Hint: `access control cannot be added to a cluster with data: create a new one with "stele init --data-dir DIR" and "stele serve --data-dir DIR", and copy the data`}
	case errors.Is(err, client.ErrNodeNotFound):
		return &Fault{Code: ExitNotFound, Hint: `"stele node list" shows the nodes with their ids`}
	case errors.Is(err, removal.ErrRemoved):
		return &Fault{Code: ExitNotFound}
	case errors.As(err, new(*identity.CorruptError)): // the error names the remedy
		return &Fault{Code: ExitUnhealthy}
	case errors.Is(err, client.ErrNodeInUse):
		return &Fault{Code: ExitError, Hint: `first drain it by "stele node drain" and stop it; --force removes it at once, and loses data that only this node holds`}
	case errors.Is(err, client.ErrSystemTable):
		return &Fault{Code: ExitError, Hint: `"stele tablet list" shows the content of METADATA`}
	case errors.Is(err, client.ErrNoTablet):
		return &Fault{Code: ExitNotFound, Hint: `"stele tablet list" shows the tablets with their ids`}
	case errors.Is(err, client.ErrBadSplit):
		return &Fault{Code: ExitError, Hint: `"stele tablet list" shows where tablets end; a tablet of one row cannot be split`}
	case errors.Is(err, client.ErrTabletBusy):
		return &Fault{Code: ExitError, Hint: "retry when the change in progress has finished"}
	case errors.Is(err, client.ErrNodeNotAlive):
		return &Fault{Code: ExitError, Hint: `"stele node list" shows which nodes are alive and not draining`}
	case errors.Is(err, client.ErrStaleEpoch):
		return &Fault{Code: ExitError, Hint: `the cluster has another master now: see "stele node list", and retry`}
	}
	return nil
}

// faultOfView maps errors about views.
func faultOfView(err error) *Fault {
	var none *table.NoViewError
	switch {
	case errors.As(err, &none) && none.Table != "":
		return &Fault{Code: ExitNotFound, Hint: fmt.Sprintf(`"stele table view list %s" shows its views`, none.Table)}
	case errors.Is(err, table.ErrNoView):
		return &Fault{Code: ExitNotFound, Hint: `"stele table view list TABLE" shows the views of a table`}
	case errors.Is(err, table.ErrViewExists):
		return &Fault{Code: ExitError, Hint: `"stele table view describe" shows it; to replace it, drop it by "stele table view drop", and grant rights on the new one`}
	case errors.Is(err, table.ErrViewChanged):
		return &Fault{Code: ExitError, Hint: `the view was changed concurrently: check "stele table view describe" and retry`}
	}
	return nil
}

// faultOfInput maps errors about arguments.
func faultOfInput(err error) *Fault {
	for _, bad := range []error{
		table.ErrLimit, table.ErrBadName, table.ErrBadTimestamp, table.ErrBadFilter, table.ErrBadRowKey,
		table.ErrBadSpec, table.ErrBadGCPolicy, table.ErrBadSchema, table.ErrFamilyExists, table.ErrNoGroup, table.ErrNoMutations, table.ErrNoRules,
	} {
		if errors.Is(err, bad) {
			return &Fault{Code: ExitUsage, Hint: inputHint(bad)}
		}
	}
	switch {
	case errors.Is(err, api.ErrNotNumber):
		return &Fault{Code: ExitError, Hint: "a counter is a value of 8 bytes written by \"stele incr\"; use another column"}
	case errors.Is(err, client.ErrRowTooLarge):
		return &Fault{Code: ExitError, Hint: "read less of the row: name columns, or use --family, --column or --versions"}
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
func faultOfSystem(err error) *Fault {
	var keys *masterkeys.Error
	switch {
	case errors.Is(err, blobfs.ErrMasterKey):
		return &Fault{Code: ExitUsage, Hint: `name the file of the node's master keys with --encryption-key-file, or a command with --encryption-key-command`}
	case errors.Is(err, blobfs.ErrNotEncrypted):
		return &Fault{Code: ExitUsage, Hint: `omit the key; or, to encrypt the node's data, drain it by "stele node drain", stop it, and start it with an empty data folder`}
	case errors.As(err, &keys) && keys.Source == "command" && (errors.As(err, new(*exec.ExitError)) || errors.Is(err, fs.ErrPermission)):
		return &Fault{Code: ExitUsage, Hint: `run the command as the node's user; under systemd, ExecPaths= of the unit must name sh, the command and their libraries`}
	case errors.As(err, &keys) && errors.Is(err, fs.ErrPermission):
		return &Fault{Code: ExitUsage, Hint: "the node's user must be able to read the file"}
	case errors.As(err, &keys):
		return &Fault{Code: ExitUsage, Hint: `want a line of 64 hexadecimal digits for each key, the current one first; create a key by "openssl rand -hex 32"`}
	case errors.Is(err, vfs.ErrLocked):
		return &Fault{Code: ExitError, Hint: "a node is using the folder: stop it first, or name another folder"}
	case errors.Is(err, raftmeta.ErrNothingToRecover):
		return &Fault{Code: ExitError, Hint: `the node is not a member of the Raft group: "stele raft status" shows the voters`}
	case errors.Is(err, syscall.ENOSPC):
		return &Fault{Code: ExitDiskFull, Hint: "free some disk space"}
	case errors.Is(err, syscall.EADDRINUSE):
		return &Fault{Code: ExitError, Hint: `another program uses the port, perhaps a node: try "stele status", or other ports for --listen, --gossip and --http`}
	case errors.Is(err, fs.ErrNotExist):
		return &Fault{Code: ExitNotFound}
	case errors.Is(err, fs.ErrPermission):
		return &Fault{Code: ExitError, Hint: "the user that runs this command lacks the permission"}
	}
	return nil
}

// Report prints err as "error:" and its hint as "hint:", and returns the exit code.
func (a *App) Report(err error) int {
	if err == nil {
		return ExitOK
	}
	var list errorList
	if !errors.As(err, &list) {
		return a.reportOne(err)
	}
	code := ExitOK
	for _, each := range list.Each() {
		if own := a.reportOne(each); code == ExitOK {
			code = own
		}
	}
	return code
}

// element is the position of an element in a request. Commands make requests of one element, or of elements that the error names.
var element = regexp.MustCompile(`(^|: )(?:mutation|rule|change|family) \d+: `)

// withoutIndexes returns the text of an error without the positions of elements in a request.
func withoutIndexes(text string) string { return element.ReplaceAllString(text, "$1") }

// An errorList is an error of several, which are reported one by one. The exit code is that of the first.
type errorList interface {
	error
	Each() []error
}

// Hint prints a hint on standard error.
func (a *App) Hint(text string) {
	fmt.Fprintf(a.Err, "%s %s\n", a.Paint(a.ErrTTY, StyleHint, "hint:"), text)
}

func (a *App) reportOne(err error) int {
	f := FaultOf(err)
	if f.quiet {
		return f.Code
	}
	text := strings.TrimRight(EscapeLines(withoutIndexes(f.Err.Error())), " ")
	if f.Code == ExitTimeout && errors.Is(err, context.DeadlineExceeded) {
		text += " (address " + a.Addr + ")"
	}
	if a.JSON {
		return a.reportJSON(f, text)
	}
	priority := ""
	if InJournal() {
		priority = "<3>" // the journal takes this prefix as the line's priority, and strips it
	}
	fmt.Fprintf(a.Err, "%s%s %s\n", priority, a.Paint(a.ErrTTY, StyleError, "error:"), text)
	if f.Hint != "" {
		a.Hint(f.Hint)
	}
	return f.Code
}

// errorJSON is the --json form of an error on standard error.
type errorJSON struct {
	Error    string `json:"error"`
	Kind     string `json:"kind"` // the name of the exit code: see kinds
	ExitCode int    `json:"exit_code"`
	Hint     string `json:"hint,omitempty"`
}

func (a *App) reportJSON(f *Fault, text string) int {
	enc := json.NewEncoder(a.Err)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(errorJSON{text, OrElse(kinds[f.Code], kinds[ExitError]), f.Code, f.Hint}) // an error cannot be reported anywhere
	return f.Code
}

// Damagedf returns a fault for corrupt data.
func Damagedf(format string, args ...any) error {
	return &Fault{Code: ExitUnhealthy, Err: fmt.Errorf(format, args...)}
}
