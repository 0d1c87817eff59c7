package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/security/audit"
)

const auditListLong = `List the last records of the audit logs of all nodes, the newest first: up to 500 of each
node. The caller needs the right admin on the cluster. A cluster without certificates has
no audit log. --json prints the lines of the logs as they are.`

const auditListExample = `  stele audit list
  stele audit list --log refusals --limit 20
  stele audit list --json | jq 'select(.action == "drop_table")'`

// auditRecord has the keys of a line that are printed; package audit specifies them.
type auditRecord struct {
	Time    string `json:"time"`
	Node    string `json:"node"`
	Kind    string `json:"kind"`
	Name    string `json:"name"`
	From    string `json:"from"`
	Action  string `json:"action"`
	On      string `json:"on"`
	Outcome string `json:"outcome"`
	Code    string `json:"code"`
	text    string
}

func auditListCommand(a *cli.App) *cobra.Command {
	log, limit := audit.Actions, 50
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the last records of the audit logs",
		Long:    auditListLong,
		Example: auditListExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.Call(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error {
				all, err := auditRecords(ctx, c, log)
				return errors.Join(printRecords(a, all[:min(len(all), limit)]), err)
			})
		},
	}
	cmd.Flags().StringVar(&log, "log", log, "audit: changes; table-admins: those of administrators of tables; refusals: rejected requests")
	cmd.Flags().Var((*cli.LimitFlag)(&limit), "limit", "the number of records to list")
	return cmd
}

// auditRecords returns the last records of all nodes, the newest first. The error is of the nodes that did not answer.
func auditRecords(ctx context.Context, c *client.Client, log string) (all []auditRecord, err error) {
	nodes, err := c.Nodes().List(ctx)
	if err != nil {
		return nil, err
	}
	for i := range nodes {
		if nodes[i].State != api.NodeAlive {
			continue
		}
		lines, failed := c.Nodes().AuditLog(ctx, nodes[i].RPC, log)
		if failed != nil {
			err = fmt.Errorf("node %s: %w", cli.NodeName(&nodes[i]), failed)
			continue
		}
		for _, text := range lines.Lines {
			r := auditRecord{text: text}
			_ = json.Unmarshal([]byte(text), &r) // a damaged line is for "stele audit verify"
			r.Node = cli.NodeName(&nodes[i])
			all = append(all, r)
		}
	}
	slices.SortStableFunc(all, func(x, y auditRecord) int { return strings.Compare(y.Time, x.Time) })
	return all, err
}

func printRecords(a *cli.App, all []auditRecord) error {
	if a.JSON {
		for i := range all {
			if _, err := fmt.Fprintln(a.Out, all[i].text); err != nil {
				return err
			}
		}
		return nil
	}
	if len(all) == 0 {
		return nil
	}
	g := cli.NewGrid("TIME", "USER", "ACTION", "ON", "OUTCOME", "FROM", "NODE")
	for i := range all {
		r := &all[i]
		outcome := r.Outcome
		if r.Code != "" {
			outcome += " (" + r.Code + ")"
		}
		g.Add(r.Time, cli.OrElse(r.Name, r.Kind), r.Action, r.On, outcome, r.From, r.Node)
	}
	return a.Print(g)
}
