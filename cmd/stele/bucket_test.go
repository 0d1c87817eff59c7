package main

import (
	"net/http"
	"net/http/httptest"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/rogpeppe/go-internal/testscript"
)

// startBucket starts a server with a bucket, and sets the environment of its clients.
func startBucket(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: bucket NAME")
	}
	backend := s3mem.New()
	ts.Check(backend.CreateBucket(args[0]))
	next := gofakes3.New(backend, gofakes3.WithTimeSkewLimit(0)).Server()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut && r.ContentLength == 0 {
			r.Header.Set("Content-Length", "0") // which gofakes3 misses
		}
		next.ServeHTTP(w, r)
	}))
	ts.Defer(srv.Close)
	ts.Setenv("AWS_ENDPOINT_URL", srv.URL)
	ts.Setenv("AWS_ACCESS_KEY_ID", "key")
	ts.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
}
