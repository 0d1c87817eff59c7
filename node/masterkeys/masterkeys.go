package masterkeys

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"syscall"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/internal/secretfile"
	"github.com/steledb/stele/internal/timing"
)

// Source names the source of the master keys. The zero value means no encryption.
type Source struct {
	// File holds the master keys, one line of 64 hexadecimal digits each. The first wraps the data keys from now on. Empty lines and lines that
	// begin with # are skipped. Only the file's owner may have access to it.
	File string
	// Command is a shell command that prints what File would contain. If it fails, Await repeats it until it succeeds.
	Command string
}

// commandTimeout bounds a command, which may call another host, and outputBytesMax its output.
const (
	commandTimeout = 30 * time.Second
	outputBytesMax = 64 << 10
	errorBytesMax  = 300
	// Pauses before a failed command is repeated; they double.
	pauseMin = 200 * time.Millisecond
	pauseMax = 10 * time.Second
)

// An Error means that the master keys cannot be read from their source.
type Error struct {
	Source string // "file NAME" or "command"
	Err    error
	// Transient reports that the command ran and failed, for example because a key service is down.
	Transient bool
}

// Error implements error.
func (e *Error) Error() string {
	return fmt.Sprintf("read the master keys of the %s: %v", e.Source, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Read returns the master keys, the current one first; none without encryption. The error is an *Error.
func (s Source) Read(ctx context.Context) (keys []blobfs.MasterKey, err error) {
	var text []byte
	transient := false
	source := "file " + s.File
	switch {
	case s.File != "" && s.Command != "":
		source, err = "file and command", errors.New("configure only one of them")
	case s.File != "":
		text, err = secretfile.Read(s.File)
	case s.Command != "":
		source = "command"
		text, transient, err = run(ctx, s.Command)
	default:
		return nil, nil
	}
	if err == nil {
		keys, err = parse(text)
	}
	if err != nil {
		return nil, &Error{source, err, transient}
	}
	return keys, nil
}

// parse parses one key per line. Its errors contain line numbers, but nothing of a key.
func parse(text []byte) (keys []blobfs.MasterKey, err error) {
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

// run returns the output of a command. After commandTimeout it kills the command's process group. An error is transient
// if the command was executed and failed.
func run(ctx context.Context, command string) (text []byte, transient bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, commandTimeout, fmt.Errorf("command took longer than %v", commandTimeout))
	defer cancel()
	out, complaint := &limitedBuffer{max: outputBytesMax}, &limitedBuffer{max: errorBytesMax}
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
		return nil, false, fmt.Errorf("command prints more than %d bytes", outputBytesMax)
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

// Await returns the master keys. It repeats a failing command until it succeeds or ctx ends, and calls waiting before each pause.
func (s Source) Await(ctx context.Context, log *slog.Logger, waiting func()) ([]blobfs.MasterKey, error) {
	pauses := timing.Backoff{Min: pauseMin, Max: pauseMax}
	for {
		keys, err := s.Read(ctx)
		var failed *Error
		if !errors.As(err, &failed) || !failed.Transient {
			return keys, err
		}
		pause := pauses.Next()
		if ctx.Err() == nil {
			waiting()
			log.Warn("master key command failed", "err", err, "retry_in", pause)
		}
		if timing.Sleep(ctx, pause) != nil {
			return nil, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}
