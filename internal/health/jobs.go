package health

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/text"
)

// Kinds of jobs: the first parts of their ids.
const (
	JobBackup      = "backup"      // a backup that is being made
	JobReplication = "replication" // a table that follows one of another cluster
	JobDrain       = "drain"       // a node that hands over what it has
	JobRotation    = "rotation"    // of the certificate authority
	JobRepair      = "repair"      // of under-replicated extents
	JobRecovery    = "recovery"    // of tablets from commit logs of dead servers
)

// States of jobs.
const (
	JobRunning = "running"
	JobPaused  = "paused"
	JobFailed  = "failed" // the last attempt ended with the job's error; others follow
)

// What users can do with jobs.
const (
	JobPause  = "pause"
	JobResume = "resume"
	JobCancel = "cancel"
)

// Job is long work that the cluster does on its own. The client that requested it may be gone, and the next master goes on with it.
type Job struct {
	ID        string   `json:"id"` // kind:name
	Kind      string   `json:"kind"`
	State     string   `json:"state"`
	What      string   `json:"what"`
	Progress  string   `json:"progress"`   // empty: unknown
	StartedMS int64    `json:"started_ms"` // in ms since 1970; 0: unknown
	By        string   `json:"by"`         // the user who requested it; empty: the cluster itself, or unknown
	Error     string   `json:"error"`
	Can       []string `json:"can"` // JobPause and the others
}

func (j *Job) is(kind, name string) { j.ID, j.Kind = kind+":"+name, kind }

// Jobs are the jobs of a cluster, in order of their ids.
type Jobs struct {
	All []Job
	// Unknown lists kinds of jobs that could not be read, with the cause, and Hidden those for which the user has no right.
	Unknown, Hidden []string
}

// JobsOf returns the jobs of a cluster. What cannot be read within clusterTimeout is unknown.
func JobsOf(ctx context.Context, c *client.Client) *Jobs {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	x := &Jobs{All: []Job{}, Unknown: []string{}, Hidden: []string{}}
	var mu sync.Mutex
	var reads sync.WaitGroup
	for kind, read := range map[string]func(context.Context, *client.Client) ([]Job, error){
		"backups": backupJobs, "replications": replicationJobs, "nodes": nodeJobs, "recoveries": recoveryJobs, "certificate authority": rotationJobs,
	} {
		reads.Go(func() {
			all, err := read(ctx, c)
			mu.Lock()
			defer mu.Unlock()
			x.All = append(x.All, all...)
			switch {
			case errors.Is(err, client.ErrPermission):
				x.Hidden = append(x.Hidden, kind)
			case errors.Is(err, api.ErrOpenCluster): // no authority
			case err != nil:
				x.Unknown = append(x.Unknown, kind+": "+err.Error())
			}
		})
	}
	reads.Wait()
	slices.SortFunc(x.All, func(a, b Job) int { return cmp.Compare(a.ID, b.ID) })
	slices.Sort(x.Unknown)
	slices.Sort(x.Hidden)
	return x
}

func backupJobs(ctx context.Context, c *client.Client) (jobs []Job, err error) {
	all, err := c.Backups().List(ctx)
	for i := range all {
		b := &all[i]
		if b.State != api.BackupMaking {
			continue
		}
		j := Job{State: JobRunning, What: "back up " + text.Plural(int64(len(b.Tables)), "table"), StartedMS: b.CreatedMS, By: b.By, Error: b.Error, Can: []string{JobCancel}}
		if len(b.Tables) == 1 {
			j.What = "back up table " + b.Tables[0]
		}
		if b.Schedule != "" {
			j.What += ", by schedule " + b.Schedule
		}
		if b.Error != "" {
			j.State = JobFailed
		}
		j.is(JobBackup, b.ID)
		jobs = append(jobs, j)
	}
	return jobs, err
}

func replicationJobs(ctx context.Context, c *client.Client) (jobs []Job, err error) {
	all, err := c.Replications().List(ctx)
	for i := range all {
		r := &all[i]
		j := Job{State: JobRunning, What: fmt.Sprintf("follow %s of %s", text.Plural(int64(len(r.Tables)), "table"), strings.Join(r.Addrs, ",")), By: r.By, Can: []string{JobPause}}
		copying, lag, rows, changes := 0, int64(0), int64(0), int64(0)
		for _, t := range r.Tables {
			if t.State == api.ReplicationCopying {
				copying++
			}
			if t.Error != "" && j.Error == "" {
				j.State, j.Error = JobFailed, t.Name+": "+t.Error
			}
			lag, rows, changes = max(lag, t.LagMS), rows+t.Rows, changes+t.Changes
		}
		if r.Paused {
			j.State, j.Can = JobPaused, []string{JobResume}
		}
		if j.Progress = fmt.Sprintf("%s made, %s behind", text.Plural(changes, "change"), text.Duration(time.Duration(lag)*time.Millisecond)); copying > 0 {
			j.Progress = fmt.Sprintf("%s of %d copied whole yet; %s copied", text.Plural(int64(len(r.Tables)-copying), "table"), len(r.Tables), text.Plural(rows, "row"))
		}
		j.is(JobReplication, r.Name)
		jobs = append(jobs, j)
	}
	return jobs, err
}

// nodeJobs returns the drains of nodes, and the repair of extents.
func nodeJobs(ctx context.Context, c *client.Client) (jobs []Job, err error) {
	nodes, err := c.Nodes().List(ctx)
	if err != nil {
		return nil, err
	}
	s, err := c.BlockStore().Status(ctx)
	if err != nil {
		s = &client.StoreStatus{}
	}
	repair := Job{State: JobRunning, What: "copy under-replicated extents"}
	repair.is(JobRepair, "extents")
	extents, bytes, rate := int64(0), int64(0), int64(0)
	for i := range s.Nodes {
		extents, bytes, rate = extents+s.Nodes[i].Under, bytes+s.Nodes[i].UnderBytes, rate+s.Nodes[i].CopyRate
	}
	repair.Progress = fmt.Sprintf("%s with %s left, at %s/s", text.Plural(extents, "extent"), text.Size(bytes), text.Size(rate))
	if extents > 0 {
		jobs = append(jobs, repair)
	}
	for i := range nodes {
		if n := &nodes[i]; n.Draining {
			j := Job{State: JobRunning, What: "drain node " + NameOf(n), Can: []string{JobCancel}}
			if at := slices.IndexFunc(s.Nodes, func(p client.NodeStore) bool { return p.Node == n.ID }); at >= 0 && s.Nodes[at].Draining {
				p := &s.Nodes[at]
				j.Progress = fmt.Sprintf("%s and %s of logs left", text.Plural(p.DrainExtents, "extent"), text.Count(p.DrainLogs))
				if p.Safe {
					j.Progress = "done: it can be removed for good"
				}
			}
			j.is(JobDrain, n.ID)
			jobs = append(jobs, j)
		}
	}
	return jobs, err
}

func recoveryJobs(ctx context.Context, c *client.Client) (jobs []Job, err error) {
	x := &Cluster{}
	if err := x.countTablets(ctx, c, map[string]int64{}); err != nil {
		return nil, err
	}
	if *x.Recovering == 0 {
		return nil, nil
	}
	j := Job{State: JobRunning, What: "recover tablets from the commit logs of dead servers", Progress: text.Plural(*x.Recovering, "tablet") + " left"}
	j.is(JobRecovery, "tablets")
	return []Job{j}, nil
}

func rotationJobs(ctx context.Context, c *client.Client) (jobs []Job, err error) {
	s, err := c.Authority().Status(ctx)
	if err != nil || s.StartedMS == 0 {
		return nil, err
	}
	j := Job{State: JobRunning, What: "replace the certificate authority", StartedMS: s.StartedMS, Progress: fmt.Sprintf("stage %s; %s to go", s.Stage, text.Plural(int64(len(s.Waiting)), "node"))}
	j.is(JobRotation, "authority")
	return []Job{j}, nil
}

// ErrNoJob means that there is no job with that id.
var ErrNoJob = errors.New("no such job")

// Find returns the job with an id. Errors: ErrNoJob, which names what could not be read.
func (x *Jobs) Find(id string) (*Job, error) {
	if i := slices.IndexFunc(x.All, func(j Job) bool { return j.ID == id }); i >= 0 {
		return &x.All[i], nil
	}
	err := fmt.Errorf("job %.80q: %w", id, ErrNoJob)
	if missing := append(slices.Clone(x.Unknown), x.Hidden...); len(missing) > 0 {
		err = fmt.Errorf("%w among those that can be read; not read: %s", err, strings.Join(missing, "; "))
	}
	return nil, err
}

// Act pauses, resumes or cancels a job. A job that cannot be is an error that names what can be done. Errors: those of the client.
func (j *Job) Act(ctx context.Context, c *client.Client, do string) error {
	_, name, _ := strings.Cut(j.ID, ":")
	if slices.Contains(j.Can, do) {
		switch j.Kind {
		case JobBackup:
			return c.Backups().Cancel(ctx, name)
		case JobDrain:
			return c.Nodes().Undrain(ctx, name)
		case JobReplication:
			if do == JobPause {
				return c.Replications().Pause(ctx, name)
			}
			return c.Replications().Resume(ctx, name)
		}
	}
	can := "it ends by itself"
	if len(j.Can) > 0 {
		can = "it can be " + done(j.Can[0])
	}
	if j.Kind == JobReplication && do == JobCancel {
		can += `; "stele replication remove" ends it`
	}
	return fmt.Errorf("job %s %w %s: %s", j.ID, ErrJobAction, done(do), can)
}

// Done returns the participles of actions.
func Done(actions []string) (all []string) {
	for _, do := range actions {
		all = append(all, done(do))
	}
	return all
}

func done(do string) string {
	return map[string]string{JobPause: "paused", JobResume: "resumed", JobCancel: "cancelled"}[do]
}

// ErrJobAction means that users cannot do this with the job.
var ErrJobAction = errors.New("cannot be")
