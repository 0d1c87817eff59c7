package cli

import (
	"bufio"
	"context"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/journal"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/steledb/stele/client"
)

// An App is the state that all commands share: the streams, their properties, and the global flags.
type App struct {
	In  io.Reader
	Out *bufio.Writer // data; flushed when the command ends
	Err io.Writer     // messages

	InTTY, OutTTY, ErrTTY bool
	Color                 bool // use colours on a terminal
	Width                 int  // columns of the terminal; 0 if output is not a terminal

	// Global flags.
	Addr       string
	Credential string // a file name; empty for none
	JSON       bool
	Timeout    time.Duration
	escapes    bool // arguments contain escapes: see unescape
}

// New returns an App with these streams.
func New(in io.Reader, out, errs io.Writer) *App {
	a := &App{In: in, Out: bufio.NewWriterSize(out, 64<<10), Err: errs}
	a.InTTY, a.OutTTY, a.ErrTTY = isTerminal(in), isTerminal(out), isTerminal(errs)
	if f, ok := out.(*os.File); ok && a.OutTTY {
		if w, _, err := term.GetSize(int(f.Fd())); err == nil {
			a.Width = w
		}
		if a.Width < 40 { // too narrow to format, or unknown
			a.Width = 80
		}
	}
	a.Color = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	return a
}

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Run runs one command line of groups and returns its exit code.
func (a *App) Run(ctx context.Context, groups []Group, args []string) int {
	root := a.Root(groups)
	root.SetArgs(guardAmount(root, args))
	err := root.ExecuteContext(ctx)
	a.JSON = a.JSON || slices.Contains(args, "--json") // parsing stops at a bad flag before --json
	if flushed := a.Out.Flush(); err == nil {
		err = flushed
	}
	return a.Report(err)
}

// Default timeouts of commands.
const (
	// DefaultTimeout is for requests that a healthy node answers at once: 30 s, twice the client's retry time.
	DefaultTimeout = 30 * time.Second
	// NoTimeout is for commands whose duration depends on the amount of work: no timeout.
	NoTimeout = 0
)

// Within returns the command's context with a timeout: --timeout, or usual if that is not set. A
// timeout of 0 or less is none.
func (a *App) Within(cmd *cobra.Command, usual time.Duration) (context.Context, context.CancelFunc) {
	d := usual
	if cmd.Flags().Changed("timeout") || a.Timeout > 0 {
		d = a.Timeout
	}
	if d <= 0 {
		return context.WithCancel(cmd.Context())
	}
	return context.WithTimeout(cmd.Context(), d)
}

// diagnosisRetries is how long commands that diagnose a cluster retry: 2 s. Their operator has to see at once what is wrong.
const diagnosisRetries = 2 * time.Second

// Diagnose is Call for commands that show what is wrong with a cluster. A request is retried for two seconds only.
func (a *App) Diagnose(cmd *cobra.Command, usual time.Duration, f func(context.Context, *client.Client) error) error {
	return a.callWith(cmd, usual, client.Config{RetryTimeMax: diagnosisRetries}, f)
}

// connect opens a client of the node at --addr.
func (a *App) connect(ctx context.Context, cfg client.Config) (*client.Client, error) {
	addrs, err := WithPorts(a.Addr)
	if err != nil {
		return nil, err
	}
	if err := a.SetCredential(&cfg); err != nil {
		return nil, err
	}
	return client.Open(ctx, addrs, cfg)
}

// WithPorts adds the default port to each address in list that has none.
func WithPorts(list string) (string, error) {
	_, port, _ := net.SplitHostPort(client.DefaultAddr)
	addrs := strings.Split(list, ",")
	for i, addr := range addrs {
		addr = strings.TrimSpace(addr)
		if _, _, err := net.SplitHostPort(addr); err != nil {
			addr = net.JoinHostPort(strings.Trim(addr, "[]"), port)
		}
		host, number, err := net.SplitHostPort(addr)
		if _, bad := strconv.ParseUint(number, 10, 16); err != nil || bad != nil || host == "" {
			return "", Usagef("", "--addr: %q is not host:port", addrs[i])
		}
		addrs[i] = addr
	}
	return strings.Join(addrs, ","), nil
}

// Call runs f with a client. The timeout is that of within.
func (a *App) Call(cmd *cobra.Command, usual time.Duration, f func(context.Context, *client.Client) error) error {
	return a.callWith(cmd, usual, client.Config{}, f)
}

func (a *App) callWith(cmd *cobra.Command, usual time.Duration, cfg client.Config, f func(context.Context, *client.Client) error) error {
	ctx, cancel := a.Within(cmd, usual)
	defer cancel()
	c, err := a.connect(ctx, cfg)
	if err != nil {
		return err
	}
	defer c.Close()
	return f(ctx, c)
}

// Fetch returns what f reads with a client. The timeout is DefaultTimeout, or --timeout.
func Fetch[T any](a *App, cmd *cobra.Command, f func(context.Context, *client.Client) (T, error)) (v T, err error) {
	err = a.Call(cmd, DefaultTimeout, func(ctx context.Context, c *client.Client) (err error) {
		v, err = f(ctx, c)
		return err
	})
	return v, err
}

// Style is the colour and weight of text on a terminal.
type Style = text.Colors

var (
	StyleError = Style{text.FgRed, text.Bold}
	StyleHint  = Style{text.FgYellow}
	StyleGood  = Style{text.FgGreen}
	StyleKey   = Style{text.Bold}
	StyleFaint = Style{text.Faint}
)

// Paint returns what in style s if it goes to a terminal and colours are on.
func (a *App) Paint(tty bool, s Style, what string) string {
	if !tty || !a.Color {
		return what
	}
	return s.EscapeSeq() + what + text.Colors{text.Reset}.EscapeSeq()
}

// InJournal reports whether standard error is connected to the journal.
func InJournal() bool {
	is, err := journal.StderrIsJournalStream()
	return is && err == nil
}
