package cluster

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/internal/text"
)

func raftCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "raft",
		Short: "Show or recover the lock service's Raft group",
		Long: `Show the lock service's Raft group, or recover it after the loss of a majority. The
group has up to five voters. It replicates schemas, locks and sessions, and elects the
master.`,
		Example: `  stele raft status
  stele raft recover --data-dir /var/lib/stele --dry-run`,
		Args: cli.UnknownCommand,
		RunE: cli.RequireSubcommand,
	}
	cmd.AddCommand(raftStatusCommand(a), raftRecoverCommand(a))
	return cmd
}

func raftStatusCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the leader, the voters and their lag",
		Long: `Show the leader and the voters of the lock service, the lag of each server, and the size
of the namespace.

Exit codes: 0 there is a leader, 5 no leader is known. Without a leader schemas cannot
be changed, locks cannot be acquired, and no master can be elected.`,
		Example: `  stele raft status
  stele raft status --json | jq -r '.servers[] | select(.voter) | .name'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.Diagnose(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error {
				s, err := c.Nodes().RaftStatus(ctx)
				if err != nil {
					return err
				}
				if err := printRaftStatus(a, s); err != nil || s.Leader != "" {
					return err
				}
				return cli.SilentExit(cli.ExitUnhealthy)
			})
		},
	}
}

func printRaftStatus(a *cli.App, s *client.RaftStatus) error {
	if a.JSON {
		return a.PrintJSON(s)
	}
	a.Notef("%s", raftSentence(a, s))
	figures := cli.NewGrid("FIGURE", "VALUE")
	figures.Add("cluster", s.Cluster)
	figures.Add("leader", named(s.LeaderName, s.Leader))
	figures.Add("master", named(s.MasterName, s.Master))
	figures.Add("term", strconv.FormatUint(s.Term, 10))
	figures.Add("log", fmt.Sprintf("%d entries, %d applied", s.LastIndex, s.Applied))
	if s.RaftEpoch > 0 {
		figures.Add("recovered", cli.Plural(int64(s.RaftEpoch), "time"))
	}
	if s.Master != "" {
		figures.Add("master epoch", strconv.FormatUint(s.MasterEpoch, 10))
	}
	figures.Add("sessions", cli.FormatCount(s.Sessions))
	figures.Add("namespace", fmt.Sprintf("%s in %s, %s", cli.Plural(s.Files, "file"), cli.Plural(s.Directories, "directory"), cli.FormatSize(s.Bytes)))
	servers := cli.NewGrid("NAME", "ID", "ZONE", "STATE", "ROLE", "LAST CONTACT", "LAG")
	for i := range s.Servers {
		v := &s.Servers[i]
		servers.Add(v.Name, v.ID, v.Zone, cli.OrElse(v.State, api.NodeUnknown), raftRole(v), lastContact(v), cli.Count(v.Lag))
	}
	return a.PrintAll(figures, servers)
}

// named returns "NAME (ID)", or the one of both that is known.
func named(name, id string) string {
	switch {
	case name == "" || name == id:
		return id
	case id == "":
		return name
	}
	return fmt.Sprintf("%s (%s)", name, id)
}

func raftRole(v *client.RaftServer) string {
	switch {
	case v.Leader:
		return "leader"
	case v.Voter:
		return "voter"
	}
	return "non-voter" // it receives the log, to become a voter later
}

func lastContact(v *client.RaftServer) cli.Number {
	switch {
	case v.Leader:
		return "-" // contact is measured by the leader
	case v.LastContactMS < 0:
		return "unknown"
	}
	return cli.Number(text.Duration(time.Duration(v.LastContactMS) * time.Millisecond))
}

// raftSentence returns a one-line summary of the group, for standard error.
func raftSentence(a *cli.App, s *client.RaftStatus) string {
	voters, alive := 0, 0
	var down []string
	for i := range s.Servers {
		v := &s.Servers[i]
		if !v.Voter {
			continue
		}
		voters++
		if v.Alive || v.Leader {
			alive++
		} else {
			down = append(down, cli.OrElse(v.Name, v.ID))
		}
	}
	of := fmt.Sprintf("%d of %s alive", alive, cli.Plural(int64(voters), "voter"))
	if s.Leader == "" {
		return a.Paint(a.ErrTTY, cli.StyleError, "unhealthy") + ": no leader is known; a majority of the voters must be up"
	}
	word := a.Paint(a.ErrTTY, cli.StyleGood, "healthy")
	details := fmt.Sprintf(", leader %s", cli.OrElse(s.LeaderName, s.Leader))
	if s.Master != "" {
		details += fmt.Sprintf(", master %s", cli.OrElse(s.MasterName, s.Master))
	}
	switch tolerated := (voters-1)/2 - (voters - alive); {
	case len(down) > 0:
		word, details = a.Paint(a.ErrTTY, cli.StyleHint, "degraded"), details+"; down: "+strings.Join(down, ", ")
	case s.Master == "":
		word, details = a.Paint(a.ErrTTY, cli.StyleHint, "degraded"), details+"; no master is known"
	case tolerated == 0:
		details += "; none may fail"
	default:
		details += fmt.Sprintf("; %d may fail", tolerated)
	}
	return word + ": " + of + details
}
