package node

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/internal/secretfile"
	"github.com/steledb/stele/internal/timing"
)

// Encryption names the source of the master keys that encrypt tables and commit logs on a node's disks. The zero value means no encryption.
type Encryption struct {
	// KeyFile holds the master keys, one line of 64 hexadecimal digits each. The first wraps the data keys from now on. Empty lines and lines that
	// begin with # are skipped. Only the file's owner may have access to it.
	KeyFile string
	// KeyCommand is a shell command that prints what KeyFile would contain. If it fails, Start repeats it until it succeeds.
	KeyCommand string
}

// keyCommandTimeout bounds a KeyCommand, which may call another host, and keyCommandBytesMax its output.
const (
	keyCommandTimeout  = 30 * time.Second
	keyCommandBytesMax = 64 << 10
	keyCommandErrorMax = 300
	// Pauses before a failed command is repeated; they double.
	keyCommandPauseMin = 200 * time.Millisecond
	keyCommandPauseMax = 10 * time.Second
)

// A MasterKeyError means that the master keys cannot be read from their source.
type MasterKeyError struct {
	Source string // "file NAME" or "command"
	Err    error
	// Transient reports that the command ran and failed, for example because a key service is down.
	Transient bool
}

// Error implements error.
func (e *MasterKeyError) Error() string {
	return fmt.Sprintf("read the master keys of the %s: %v", e.Source, e.Err)
}

// Unwrap returns the cause.
func (e *MasterKeyError) Unwrap() error { return e.Err }

// masterKeys returns the master keys, the current one first; none without encryption. The error is a *MasterKeyError.
func (e Encryption) masterKeys(ctx context.Context) (keys []blobfs.MasterKey, err error) {
	var text []byte
	transient := false
	source := "file " + e.KeyFile
	switch {
	case e.KeyFile != "" && e.KeyCommand != "":
		source, err = "file and command", errors.New("configure only one of them")
	case e.KeyFile != "":
		text, err = secretfile.Read(e.KeyFile)
	case e.KeyCommand != "":
		source = "command"
		text, transient, err = runKeyCommand(ctx, e.KeyCommand)
	default:
		return nil, nil
	}
	if err == nil {
		keys, err = parseMasterKeys(text)
	}
	if err != nil {
		return nil, &MasterKeyError{source, err, transient}
	}
	return keys, nil
}

// parseMasterKeys parses one key per line. Its errors contain line numbers, but nothing of a key.
func parseMasterKeys(text []byte) (keys []blobfs.MasterKey, err error) {
	number := 0
	for line := range bytes.Lines(text) {
		number++
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		var key blobfs.MasterKey
		if len(line) != hex.EncodedLen(len(key)) {
			return nil, fmt.Errorf("line %d has %d characters, not %d hexadecimal digits", number, len(line), hex.EncodedLen(len(key)))
		}
		if _, err := hex.Decode(key[:], line); err != nil {
			return nil, fmt.Errorf("line %d has other characters than hexadecimal digits", number)
		}
		if key == (blobfs.MasterKey{}) {
			return nil, fmt.Errorf("line %d has only zeros: generate a key with \"openssl rand -hex %d\"", number, len(key))
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("no key found: generate one with \"openssl rand -hex %d\"", blobfs.MasterKeyBytes)
	}
	return keys, nil
}

// runKeyCommand returns the output of a command. After keyCommandTimeout it kills the command's process group. An error is transient
// if the command was executed and failed.
func runKeyCommand(ctx context.Context, command string) (text []byte, transient bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, keyCommandTimeout, fmt.Errorf("command took longer than %v", keyCommandTimeout))
	defer cancel()
	out, complaint := &limitedBuffer{max: keyCommandBytesMax}, &limitedBuffer{max: keyCommandErrorMax}
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", command)
	cmd.Stdout, cmd.Stderr = out, complaint
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	err = cmd.Run()
	switch {
	case ctx.Err() != nil:
		return nil, true, context.Cause(ctx)
	case err != nil:
		code := cmd.ProcessState.ExitCode() // of sh: 126 cannot be executed, 127 not found
		if text := bytes.TrimSpace(complaint.b); len(text) > 0 {
			err = fmt.Errorf("%w: %q", err, text)
		}
		return nil, code != 126 && code != 127 && errors.As(err, new(*exec.ExitError)), err
	case out.over:
		return nil, false, fmt.Errorf("command prints more than %d bytes", keyCommandBytesMax)
	}
	return out.b, false, nil
}

// limitedBuffer keeps the first max bytes that are written to it.
type limitedBuffer struct {
	b    []byte
	max  int
	over bool
}

// Write implements io.Writer.
func (l *limitedBuffer) Write(p []byte) (int, error) {
	n := min(len(p), l.max-len(l.b))
	l.b = append(l.b, p[:n]...)
	l.over = l.over || n < len(p)
	return len(p), nil
}

// openEncryption reads the master keys and checks the data directories against them, before anything is written.
func (n *Node) openEncryption(ctx context.Context) (err error) {
	if n.masterKeys, err = n.awaitMasterKeys(ctx); err != nil {
		return err
	}
	return blobfs.CheckEncryption(blobfs.Config{Folders: blobFolders(n.cfg.DataDirs), MasterKeys: n.masterKeys})
}

// awaitMasterKeys returns the master keys. It repeats a failing command until it succeeds or ctx ends.
func (n *Node) awaitMasterKeys(ctx context.Context) ([]blobfs.MasterKey, error) {
	pauses := timing.Backoff{Min: keyCommandPauseMin, Max: keyCommandPauseMax}
	for {
		keys, err := n.cfg.Encryption.masterKeys(ctx)
		var failed *MasterKeyError
		if !errors.As(err, &failed) || !failed.Transient {
			return keys, err
		}
		pause := pauses.Next()
		if ctx.Err() == nil {
			n.enter("the command that prints the master keys")
			n.log.Warn("master key command failed", "err", err, "retry_in", pause)
		}
		if timing.Sleep(ctx, pause) != nil {
			return nil, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}
