package cluster

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/internal/text"
	"github.com/steledb/stele/internal/trace"
	"github.com/steledb/stele/internal/tracetree"
)

const traceLong = `Show what the nodes did for the requests of a trace, or list the traces that they keep.

A node traces the requests that take as long as its setting slow_request, one of every
trace_sample others, chosen at random, and those whose callers sample them. It keeps 256
of each, in memory. AFTER is the time since the trace began, or since the request
arrived. Stages of a request may overlap; what they leave of TOOK is the request's own
work.`

const traceExample = `  stele trace
  stele trace 0af7651916cd43dd8448eb211c80319c
  stele trace --json | jq -r 'select(.kept == "sampled") | .trace'`

func traceCommand(a *cli.App) *cobra.Command {
	limit := 50
	cmd := &cobra.Command{
		Use:     "trace [ID]",
		Short:   "Show what requests did and waited for",
		Long:    traceLong,
		Example: traceExample,
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.Diagnose(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error {
				if len(args) == 0 {
					return listTraces(ctx, a, c, limit)
				}
				return showTrace(ctx, a, c, args[0])
			})
		},
	}
	cmd.Flags().Var((*cli.LimitFlag)(&limit), "limit", "the number of traces to list")
	return cmd
}

// spanJSON is the --json form of a request in a trace.
type spanJSON struct {
	Node string `json:"node"`
	client.Trace
	cli.RowJSON
	TookS   float64     `json:"took_s"`
	WaitedS float64     `json:"waited_s"`
	Stages  []stageJSON `json:"stages"`
}

type stageJSON struct {
	Name   string  `json:"name"`
	AfterS float64 `json:"after_s"`
	TookS  float64 `json:"took_s"`
	Times  int64   `json:"times"`
}

func printSpansJSON(a *cli.App, spans []tracetree.Span) error {
	for i := range spans {
		if err := a.PrintJSON(spanOf(spans[i].Node, &spans[i].Trace)); err != nil {
			return err
		}
	}
	return nil
}

func spanOf(node string, t *client.Trace) spanJSON {
	x := spanJSON{Node: node, Trace: *t, RowJSON: cli.RowOf(string(t.Row)), TookS: t.Took.Seconds(), WaitedS: t.Waited.Seconds(), Stages: []stageJSON{}}
	for _, g := range t.Stages {
		x.Stages = append(x.Stages, stageJSON{g.Name, g.After.Seconds(), g.Took.Seconds(), g.Times})
	}
	return x
}

// incomplete returns an error if nodes did not answer, after those of the others were printed.
func incomplete(unknown []string) error {
	if len(unknown) == 0 {
		return nil
	}
	return fmt.Errorf("incomplete: %s", strings.Join(unknown, "; "))
}

func millis(d time.Duration) cli.Number {
	return cli.Number(text.Millis(float64(d) / float64(time.Millisecond)))
}

func listTraces(ctx context.Context, a *cli.App, c *client.Client, limit int) error {
	spans, unknown, err := tracetree.Gather(ctx, c, "")
	if err != nil {
		return err
	}
	if len(spans) == 0 && len(unknown) > 0 { // there may be some
		return incomplete(unknown)
	}
	spans = spans[:min(len(spans), limit)]
	if a.JSON {
		if err := printSpansJSON(a, spans); err != nil {
			return err
		}
		return incomplete(unknown)
	}
	if len(spans) == 0 {
		a.Notef("no traces are kept")
	}
	g := cli.NewGrid("TRACE", "WHEN", "NODE", "METHOD", "TABLE", "ROW", "TOOK", "KEPT", "ERROR", "USER", "FROM")
	for i := range spans {
		s := &spans[i]
		g.Add(s.Trace.Trace, time.UnixMilli(s.EndMS).UTC().Format(time.RFC3339), s.Node, s.Method, s.Table, string(s.Row), millis(s.Took), s.Kept, s.Error, s.User, s.From)
	}
	if err := a.Print(g); err != nil {
		return err
	}
	return incomplete(unknown)
}

func showTrace(ctx context.Context, a *cli.App, c *client.Client, id string) error {
	id = strings.ToLower(id)
	if _, ok := trace.ParseID(id); !ok {
		return cli.Usagef(`"stele trace" lists the traces`, "%q is not a trace: its id has 32 hexadecimal digits", id)
	}
	spans, unknown, err := tracetree.Gather(ctx, c, id)
	if err != nil {
		return err
	}
	if len(spans) == 0 && len(unknown) == 0 {
		return cli.NotFoundf(`"stele trace" lists the traces`, "no node has the trace %s, or no longer", id)
	}
	spans = tracetree.Tree(spans)
	if a.JSON {
		err = printSpansJSON(a, spans)
	} else {
		err = a.Print(traceGrid(spans))
	}
	if err != nil {
		return err
	}
	return incomplete(unknown)
}

// traceGrid returns the tree of a trace: each request is followed by its stages, and by the requests that it caused.
func traceGrid(spans []tracetree.Span) *cli.Grid {
	g := cli.NewGrid("WHAT", "NODE", "AFTER", "TOOK", "TIMES", "ABOUT")
	for i := range spans {
		s := &spans[i]
		indent := strings.Repeat("  ", s.Depth)
		g.Add(indent+s.Method, s.Node, millis(s.After), millis(s.Took), cli.Number(""), aboutSpan(s))
		g.Add(indent+"  · before it began", "", millis(0), millis(s.Waited), cli.Number(""), "")
		for _, x := range s.Stages {
			about := ""
			if x.Name == trace.Disk.String() {
				about = "blocks that no cache had"
			} else if x.Node != "" {
				about = "the last was " + s.NameOf(x.Node)
			}
			g.Add(indent+"  · "+x.Name, "", millis(x.After), millis(x.Took), cli.Count(x.Times), about)
		}
		for _, x := range s.Counts {
			g.Add(indent+"  · "+x.Name, "", cli.Number(""), cli.Number(""), cli.Count(x.N), "")
		}
	}
	return g
}

// aboutSpan describes a request.
func aboutSpan(s *tracetree.Span) string {
	about := []string{time.UnixMicro(s.BeganUS).UTC().Format("2006-01-02T15:04:05.000Z"), s.Kept}
	add := func(what, value string) {
		if value != "" {
			about = append(about, what+" "+value)
		}
	}
	add("error", s.Error)
	add("table", s.Table)
	add("row", string(s.Row))
	if s.Tablet > 0 {
		add("tablet", fmt.Sprint(s.Tablet))
	}
	add("user", s.User)
	add("from", s.From)
	return strings.Join(about, ", ")
}
