package health

import (
	"errors"
	"strings"
	"testing"
)

// TestJobActions: what cannot be done with a job is an error that names what can, and sends no request.
func TestJobActions(t *testing.T) {
	for _, test := range []struct {
		job  Job
		do   string
		want string
	}{
		{Job{ID: "repair:extents", Kind: JobRepair}, JobCancel, "job repair:extents cannot be cancelled: it ends by itself"},
		{Job{ID: "backup:1", Kind: JobBackup, Can: []string{JobCancel}}, JobPause, "job backup:1 cannot be paused: it can be cancelled"},
		{Job{ID: "replication:east", Kind: JobReplication, Can: []string{JobResume}}, JobPause, "job replication:east cannot be paused: it can be resumed"},
		{Job{ID: "replication:east", Kind: JobReplication, Can: []string{JobPause}}, JobCancel, `job replication:east cannot be cancelled: it can be paused; "stele replication remove" ends it`},
	} {
		if err := test.job.Act(t.Context(), nil, test.do); !errors.Is(err, ErrJobAction) || err.Error() != test.want {
			t.Errorf("%q, want %q", err, test.want)
		}
	}
	x := &Jobs{All: []Job{{ID: "a"}}, Unknown: []string{"backups: no answer"}, Hidden: []string{"replications"}}
	if j, err := x.Find("a"); err != nil || j.ID != "a" {
		t.Errorf("%v, %v", j, err)
	}
	if _, err := x.Find("b"); !errors.Is(err, ErrNoJob) || !strings.Contains(err.Error(), "not read: backups: no answer; replications") {
		t.Error(err)
	}
}
