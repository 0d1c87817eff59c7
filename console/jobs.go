package console

import (
	"context"
	"net/http"

	"github.com/steledb/stele/internal/health"
)

// jobsPage lists the long work of the cluster.
func jobsPage(ctx context.Context, q *query) (*content, error) {
	if _, err := q.Ping(ctx); err != nil {
		return nil, err
	}
	return &content{Title: "Jobs", Template: "jobs.html", Section: "Jobs", Data: health.JobsOf(ctx, q.Client)}, nil
}

// jobAction pauses, resumes or cancels a job.
func jobAction(do string) action {
	return func(ctx context.Context, q *query) (string, error) {
		j, err := health.JobsOf(ctx, q.Client).Find(q.r.PathValue("job"))
		if err != nil {
			return "", &pageError{http.StatusNotFound, err.Error()}
		}
		return "/jobs", j.Act(ctx, q.Client, do)
	}
}
