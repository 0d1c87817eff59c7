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

// An app is what every verb works with: the streams, what is known of them, and
// the global flags.
type app struct {
	in  io.Reader
	out *bufio.Writer // data; flushed when the command ends
	err io.Writer     // talk

	inTTY, outTTY, errTTY bool
	color                 bool // colours are wanted where there is a terminal
	width                 int  // columns of the terminal; 0 if output is none

	// Global flags.
	addr string
	// credential is a file, empty for none.
	credential string
	json       bool
	timeout    time.Duration
	escapes    bool // arguments hold escapes: see unescape
}

func newApp(in io.Reader, out, errs io.Writer) *app {
	a := &app{in: in, out: bufio.NewWriterSize(out, 64<<10), err: errs}
	a.inTTY, a.outTTY, a.errTTY = isTerminal(in), isTerminal(out), isTerminal(errs)
	if f, ok := out.(*os.File); ok && a.outTTY {
		if w, _, err := term.GetSize(int(f.Fd())); err == nil {
			a.width = w
		}
		if a.width < 40 { // nothing sensible fits, or the terminal does not know
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
	a.json = a.json || slices.Contains(args, "--json") // also if a flag before it was wrong
	if flushed := a.out.Flush(); err == nil {
		err = flushed
	}
	return a.report(err)
}

// Timeouts of commands that were given none.
const (
	// quick is for what a healthy node answers at once: 30 s, twice as long as the
	// client goes on trying.
	quick = 30 * time.Second
	// patient commands take as long as their work does.
	patient = 0
)

// within returns the command's context, ending after --timeout or else after usual.
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
	if err := a.identify(&cfg); err != nil {
		return nil, err
	}
	return client.Open(ctx, addrs, cfg)
}

// withPorts adds the port to the addresses of a list that have none.
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
			return "", usagef("", "--addr: %q is not of the form host:port", addrs[i])
		}
		addrs[i] = addr
	}
	return strings.Join(addrs, ","), nil
}

// call runs f with a client, within --timeout or else usual.
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

// style is a look of text on a terminal.
type style = text.Colors

var (
	styleError = style{text.FgRed, text.Bold}
	styleHint  = style{text.FgYellow}
	styleGood  = style{text.FgGreen}
	styleKey   = style{text.Bold}
	styleFaint = style{text.Faint}
)

// paint colours s if it goes to a terminal that is to have colours.
func (a *app) paint(tty bool, s style, what string) string {
	if !tty || !a.color {
		return what
	}
	return s.EscapeSeq() + what + text.Colors{text.Reset}.EscapeSeq()
}
