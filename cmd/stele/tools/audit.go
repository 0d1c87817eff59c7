package tools

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/security/audit"
)

func auditCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "List and verify the audit logs",
		Long: `List the audit logs of the nodes, and verify those of one: the records of administrative
changes and of rejected requests.`,
		Example: `  stele audit list
  stele audit verify /var/lib/stele/security/audit`,
		Args:    cli.UnknownCommand,
		RunE:    cli.RequireSubcommand,
	}
	cmd.AddCommand(auditListCommand(a), auditVerifyCommand(a))
	return cmd
}

// chainJSON is the --json form of a log. Unlike audit.Chain it has the head as --head accepts it.
type chainJSON struct {
	Node      string `json:"node"`
	Log       string `json:"log"`
	First     uint64 `json:"first"`
	Last      uint64 `json:"last"`
	From      string `json:"from,omitempty"`
	To        string `json:"to,omitempty"`
	Head      string `json:"head,omitempty"`
	Unchained int    `json:"unchained,omitempty"`
}

const auditVerifyLong = `Detect lines of an audit log that were changed, removed, repeated or moved. Each line
contains the SHA-256 of the line before it. FOLDER is the folder "audit" below a node's
keys. FILE is the file of the setting audit_to, or an export of the journal, of any
number of nodes; - is standard input.

A truncated or wholly forged log can be detected only against an end that was recorded
elsewhere: pass it with --head. This command prints the end of each log. A node writes
it to its own log every hour, at start and at stop.

The first lines list the problems, each with file and line. One line for each log
follows. Exit codes: 0 no problems, 5 problems found.`

const auditVerifyExample = `  stele audit verify /var/lib/stele/security/audit
  journalctl -t stele-audit -o cat | stele audit verify -
  stele audit verify /var/lib/stele/security/audit --head audit:17:5d1c...`

func auditVerifyCommand(a *cli.App) *cobra.Command {
	var texts []string
	cmd := &cobra.Command{
		Use:     "verify FOLDER|FILE|-",
		Short:   "Detect changed or removed lines of an audit log",
		Long:    auditVerifyLong,
		Example: auditVerifyExample,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			heads, err := headsOf(texts)
			if err != nil {
				return err
			}
			chains, err := verifyAudit(a, args[0], heads)
			tampered := tampersOf(err)
			if err != nil && len(tampered) == 0 {
				return err
			}
			if err := printAudit(a, chains, tampered); err != nil || len(tampered) == 0 {
				return err
			}
			return cli.SilentExit(cli.ExitUnhealthy)
		},
	}
	cmd.Flags().StringArrayVar(&texts, "head", nil, "end of a log that was recorded before, as `LOG:SEQ:SHA256`; may be repeated")
	return cmd
}

// headsOf parses the values of --head.
func headsOf(texts []string) (heads []audit.Head, err error) {
	for _, text := range texts {
		h, err := audit.ParseHead(text)
		if err != nil {
			return nil, cli.Usagef("", "--head: %v", err)
		}
		heads = append(heads, h)
	}
	return heads, nil
}

// verifyAudit verifies a folder, a file, or standard input for "-". For the folder of a node's keys
// it verifies the folder "audit" in it.
func verifyAudit(a *cli.App, path string, heads []audit.Head) ([]audit.Chain, error) {
	if path == "-" {
		return audit.Verify("standard input", a.In, heads)
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		if below := filepath.Join(path, "audit"); exists(below) {
			path = below
		}
		return audit.VerifyFolder(path, heads)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return audit.Verify(path, f, heads)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// tampersOf returns all TamperErrors in err; none if it has none.
func tampersOf(err error) (all []*audit.TamperError) {
	var many interface{ Unwrap() []error }
	if errors.As(err, &many) {
		for _, err := range many.Unwrap() {
			all = append(all, tampersOf(err)...)
		}
		return all
	}
	var one *audit.TamperError
	if errors.As(err, &one) {
		all = append(all, one)
	}
	return all
}

// printAudit prints the problems, then one line for each log.
func printAudit(a *cli.App, chains []audit.Chain, problems []*audit.TamperError) error {
	if err := printTampering(a, problems); err != nil {
		return err
	}
	g := cli.NewGrid("NODE", "LOG", "LINES", "FROM", "TO", "END")
	for _, c := range chains {
		j := chainJSON{Node: c.Node, Log: c.Log, First: c.First, Last: c.Last, From: c.From, To: c.To, Unchained: c.Unchained}
		if c.Last > 0 {
			j.Head = fmt.Sprintf("%s:%d:%s", c.Log, c.Last, c.Sum)
		}
		if a.JSON {
			if err := a.PrintJSON(j); err != nil {
				return err
			}
			continue
		}
		g.Add(cli.EscapeText(c.Node), c.Log, fmt.Sprintf("%d-%d", c.First, c.Last), cli.OrElse(cli.EscapeText(c.From), "-"), cli.OrElse(cli.EscapeText(c.To), "-"), cli.OrElse(j.Head, "-"))
	}
	if a.JSON {
		return nil
	}
	return a.Print(g)
}

// printTampering prints a line for each changed or removed part of a log.
func printTampering(a *cli.App, problems []*audit.TamperError) error {
	for _, p := range problems {
		var err error
		if a.JSON {
			err = a.PrintJSON(map[string]any{"file": p.File, "line": p.Line, "error": p.Reason})
		} else {
			_, err = fmt.Fprintln(a.Out, cli.EscapeText(p.Error()))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
