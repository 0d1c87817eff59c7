package main

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

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/steledb/stele/client"
)

// An app is the state that all commands share: the streams, their properties, and the global flags.
type app struct {
	in  io.Reader
	out *bufio.Writer // data; flushed when the command ends
	err io.Writer     // messages

	inTTY, outTTY, errTTY bool
	color                 bool // use colours on a terminal
	width                 int  // columns of the terminal; 0 if output is not a terminal

	// Global flags.
	addr       string
	credential string // a file name; empty for none
	json       bool
	timeout    time.Duration
	escapes    bool // arguments contain escapes: see unescape
}

func newApp(in io.Reader, out, errs io.Writer) *app {
	a := &app{in: in, out: bufio.NewWriterSize(out, 64<<10), err: errs}
	a.inTTY, a.outTTY, a.errTTY = isTerminal(in), isTerminal(out), isTerminal(errs)
	if f, ok := out.(*os.File); ok && a.outTTY {
		if w, _, err := term.GetSize(int(f.Fd())); err == nil {
			a.width = w
		}
		if a.width < 40 { // too narrow to format, or unknown
			a.width = 80
		}
	}
	a.color = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	return a
}

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// run runs one command line and returns its exit code.
func (a *app) run(ctx context.Context, args []string) int {
	root := a.rootCommand()
	root.SetArgs(guardAmount(root, args))
	err := root.ExecuteContext(ctx)
	a.json = a.json || slices.Contains(args, "--json") // parsing stops at a bad flag before --json
	if flushed := a.out.Flush(); err == nil {
		err = flushed
	}
	return a.report(err)
}

// Default timeouts of commands.
const (
	// defaultTimeout is for requests that a healthy node answers at once: 30 s, twice the client's retry time.
	defaultTimeout = 30 * time.Second
	// noTimeout is for commands whose duration depends on the amount of work: no timeout.
	noTimeout = 0
)

// within returns the command's context with a timeout: --timeout, or usual if that is not set. A
// timeout of 0 or less is none.
func (a *app) within(cmd *cobra.Command, usual time.Duration) (context.Context, context.CancelFunc) {
	d := usual
	if cmd.Flags().Changed("timeout") || a.timeout > 0 {
		d = a.timeout
	}
	if d <= 0 {
		return context.WithCancel(cmd.Context())
	}
	return context.WithTimeout(cmd.Context(), d)
}

// connect opens a client of the node at --addr.
func (a *app) connect(ctx context.Context) (*client.Client, error) {
	addrs, err := withPorts(a.addr)
	if err != nil {
		return nil, err
	}
	var cfg client.Config
	if err := a.setCredential(&cfg); err != nil {
		return nil, err
	}
	return client.Open(ctx, addrs, cfg)
}

// withPorts adds the default port to each address in list that has none.
func withPorts(list string) (string, error) {
	_, port, _ := net.SplitHostPort(client.DefaultAddr)
	addrs := strings.Split(list, ",")
	for i, addr := range addrs {
		addr = strings.TrimSpace(addr)
		if _, _, err := net.SplitHostPort(addr); err != nil {
			addr = net.JoinHostPort(strings.Trim(addr, "[]"), port)
		}
		host, number, err := net.SplitHostPort(addr)
		if _, bad := strconv.ParseUint(number, 10, 16); err != nil || bad != nil || host == "" {
			return "", usagef("", "--addr: %q is not host:port", addrs[i])
		}
		addrs[i] = addr
	}
	return strings.Join(addrs, ","), nil
}

// call runs f with a client. The timeout is that of within.
func (a *app) call(cmd *cobra.Command, usual time.Duration, f func(context.Context, *client.Client) error) error {
	ctx, cancel := a.within(cmd, usual)
	defer cancel()
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	return f(ctx, c)
}

// style is the colour and weight of text on a terminal.
type style = text.Colors

var (
	styleError = style{text.FgRed, text.Bold}
	styleHint  = style{text.FgYellow}
	styleGood  = style{text.FgGreen}
	styleKey   = style{text.Bold}
	styleFaint = style{text.Faint}
)

// paint returns what in style s if it goes to a terminal and colours are on.
func (a *app) paint(tty bool, s style, what string) string {
	if !tty || !a.color {
		return what
	}
	return s.EscapeSeq() + what + text.Colors{text.Reset}.EscapeSeq()
}
