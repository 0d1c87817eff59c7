package s3store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/minio/minio-go/v7"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/internal/backupdir"
)

func TestMain(m *testing.M) {
	minio.DefaultRetryUnit, minio.DefaultRetryCap = time.Millisecond, 2*time.Millisecond
	m.Run()
}

// server is a server of buckets, whose answers a test may replace.
type server struct {
	t    *testing.T
	http *httptest.Server
	env  map[string]string
	mu   sync.Mutex
	n    int // requests
	hook func(n int, w http.ResponseWriter, r *http.Request, next http.Handler) (done bool)
}

func serve(t *testing.T) *server {
	backend := s3mem.New()
	if err := backend.CreateBucket("backups"); err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, env: map[string]string{"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}}
	next := gofakes3.New(backend, gofakes3.WithTimeSkewLimit(0)).Server()
	s.http = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.n++
		n, hook := s.n, s.hook
		s.mu.Unlock()
		if r.Method == http.MethodPut && r.ContentLength == 0 {
			r.Header.Set("Content-Length", "0") // which gofakes3 misses
		}
		if hook == nil || !hook(n, w, r, next) {
			next.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(s.http.Close)
	return s
}

func (s *server) on(hook func(n int, w http.ResponseWriter, r *http.Request, next http.Handler) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n, s.hook = 0, hook
}

func (s *server) requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n
}

func (s *server) openAt(location string) (*Store, error) {
	return Open(s.t.Context(), location, Config{Endpoint: s.http.URL, Getenv: func(name string) string { return s.env[name] }})
}

// open returns a store with small parts.
func (s *server) open() *Store {
	s.t.Helper()
	st, err := s.openAt("s3://backups/a/b")
	if err != nil {
		s.t.Fatal(err)
	}
	st.part, st.pause = 64, time.Millisecond
	return st
}

// cluster is a source and a target of backups: files by their contents.
type cluster struct {
	mu      sync.Mutex
	backups map[string][]client.BackupFile
	content map[string][]byte
	reads   int
	staged  map[string][]byte
}

func newCluster() *cluster {
	return &cluster{backups: map[string][]client.BackupFile{}, content: map[string][]byte{}, staged: map[string][]byte{}}
}

func (c *cluster) add(id string, contents ...string) *client.Backup {
	for _, x := range contents {
		_, sum := sums([]byte(x))
		f := client.BackupFile{ID: sum[:32], Bytes: int64(len(x)), Check: sum[:8]}
		c.content[f.ID] = []byte(x)
		c.backups[id] = append(c.backups[id], f)
	}
	return &client.Backup{ID: id, Tables: []string{"t"}}
}

func (c *cluster) Files(_ context.Context, id string, each func(*client.BackupFile) error) error {
	for _, f := range c.backups[id] {
		if err := each(&f); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) Read(_ context.Context, _ string, f *client.BackupFile, p []byte, off int64) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads++
	return copy(p, c.content[f.ID][off:]), nil
}

func (c *cluster) PutStaged(_ context.Context, _ string, r io.Reader) (client.BlobInfo, error) {
	b, err := io.ReadAll(r)
	if err != nil {
		return client.BlobInfo{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	id := fmt.Sprintf("%032x", len(c.staged)+1)
	c.staged[id] = b
	return client.BlobInfo{ID: id}, nil
}

func (c *cluster) Delete(_ context.Context, id string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.staged[id] = nil
	return nil
}

func (c *cluster) Import(context.Context, string, string) (string, error) { return "imported", nil }

func copyTo(t *testing.T, st *Store, key *backupdir.Key, c *cluster, b *client.Backup) error {
	_, err := backupdir.In(st, key).Copy(t.Context(), c, b, nil, &backupdir.Progress{})
	return err
}

// names returns all objects of a store.
func names(t *testing.T, st *Store) (all []string) {
	t.Helper()
	for _, dir := range []string{"objects", "backups", tempDir, lockDir} {
		if err := st.List(t.Context(), dir, func(name string, _ int64) error { all = append(all, name); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

var contents = []string{"manifest", "one", "", strings.Repeat("0123456789abcdef", 9), strings.Repeat("x", 64)}

// TestBackups: a bucket keeps backups as a directory does, with objects of one part and of several, plain and encrypted.
func TestBackups(t *testing.T) {
	for _, secret := range [][]byte{nil, bytes.Repeat([]byte{1}, backupdir.KeyBytes)} {
		s, c := serve(t), newCluster()
		var key *backupdir.Key
		if secret != nil {
			var err error
			if key, err = backupdir.NewKey(secret); err != nil {
				t.Fatal(err)
			}
		}
		st := s.open()
		d := backupdir.In(st, key)
		if all, err := d.List(t.Context()); err != nil || len(all) > 0 {
			t.Errorf("an empty bucket has %v, %v", all, err)
		}
		if err := copyTo(t, st, key, c, c.add("b1", contents...)); err != nil {
			t.Fatal(err)
		}
		c.reads = 0
		if err := copyTo(t, st, key, c, c.add("b2", append(contents, "new")...)); err != nil || c.reads != 1 {
			t.Errorf("a second copy reads %d files: %v", c.reads, err)
		}
		bad := func(id string, err *backupdir.CorruptError) { t.Errorf("backup %s: %v", id, err) }
		if err := d.Verify(t.Context(), []string{"b1", "b2"}, &backupdir.Progress{}, bad); err != nil {
			t.Error(err)
		}
		if id, err := d.Import(t.Context(), c, "b2", nil, &backupdir.Progress{}); err != nil || id != "imported" {
			t.Errorf("imported %q, %v", id, err)
		}
		if freed, err := d.Delete(t.Context(), "b2"); err != nil || freed.Objects != 1 {
			t.Errorf("a deletion frees %+v, %v", freed, err)
		}
		if _, err := d.Delete(t.Context(), "b2"); !errors.Is(err, backupdir.ErrNoBackup) {
			t.Errorf("deleted again: %v", err)
		}
		if all, err := d.List(t.Context()); err != nil || len(all) != 1 || all[0].ID != "b1" || all[0].Err != nil {
			t.Errorf("left are %+v, %v", all, err)
		}
		for _, name := range names(t, st) {
			if strings.HasPrefix(name, tempDir) || strings.Contains(name, ".partial") {
				t.Errorf("object %s is left", name)
			}
		}
	}
}

// TestFailures (SS1): whichever request fails, once or from then on, or kills the process: a copy succeeds or fails with an error that has a remedy, lists no
// backup that is not whole, and succeeds later.
func TestFailures(t *testing.T) {
	fail := func(w http.ResponseWriter) {
		http.Error(w, "<Error><Code>InternalError</Code></Error>", http.StatusInternalServerError)
	}
	for _, once := range []bool{true, false} {
		for at := 1; ; at++ {
			s, c := serve(t), newCluster()
			st, b := s.open(), c.add("b1", contents...)
			st.timing.lease = 0 // the lock of a copy that failed keeps no other one out
			s.on(func(n int, w http.ResponseWriter, _ *http.Request, _ http.Handler) bool {
				if n == at || n > at && !once {
					fail(w)
					return true
				}
				return false
			})
			err := copyTo(t, st, nil, c, b)
			reached := s.requests() >= at
			s.on(nil)
			all, listErr := backupdir.In(st, nil).List(t.Context())
			var e *Error
			switch {
			case listErr != nil:
				t.Fatal(listErr)
			case once && err != nil:
				t.Fatalf("a copy of which request %d failed once: %v", at, err)
			case err != nil && (!errors.As(err, &e) || e.Remedy == "" || !strings.Contains(err.Error(), "s3://backups/a/b")):
				t.Fatalf("a copy that failed from request %d on: %v", at, err)
			case (err == nil) && len(all) != 1:
				t.Fatalf("a copy that succeeded, with failures from request %d on, lists %+v", at, all)
			}
			for range all {
				wrong := func(id string, err *backupdir.CorruptError) {
					t.Fatalf("after failures from request %d on: %s: %v", at, id, err)
				}
				if err := backupdir.In(st, nil).Verify(t.Context(), []string{"b1"}, &backupdir.Progress{}, wrong); err != nil {
					t.Fatal(err)
				}
			}
			if err := copyTo(t, st, nil, c, b); err != nil {
				t.Fatalf("a copy after failures from request %d on: %v", at, err)
			}
			if !reached {
				break
			}
		}
	}
}

// TestBrokenReads (SS1, BD4): an answer that breaks off is continued; one with other bytes, or with half of them, is damage that names the object.
func TestBrokenReads(t *testing.T) {
	s, c := serve(t), newCluster()
	st := s.open()
	if err := copyTo(t, st, nil, c, c.add("b1", "manifest", strings.Repeat("y", 4000))); err != nil {
		t.Fatal(err)
	}
	object := func(r *http.Request) bool {
		return r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/objects/")
	}
	// replay answers with what the server would, changed, and with another length if length is not 0.
	replay := func(w http.ResponseWriter, r *http.Request, next http.Handler, length int, change func([]byte) []byte) {
		rec := httptest.NewRecorder()
		next.ServeHTTP(rec, r)
		for k, v := range rec.Header() {
			w.Header()[k] = v
		}
		p := change(rec.Body.Bytes())
		w.Header().Set("Content-Length", fmt.Sprint(max(length, len(p))))
		w.WriteHeader(rec.Code)
		_, _ = w.Write(p)
	}
	verify := func() (damaged []string, err error) {
		err = backupdir.In(st, nil).Verify(t.Context(), []string{"b1"}, &backupdir.Progress{}, func(_ string, err *backupdir.CorruptError) { damaged = append(damaged, err.Error()) })
		return damaged, err
	}
	s.on(func(_ int, w http.ResponseWriter, r *http.Request, next http.Handler) bool { // each answer has at most 1500 bytes
		if object(r) {
			replay(w, r, next, 4000, func(p []byte) []byte { return p[:min(len(p), 1500)] })
		}
		return object(r)
	})
	if damaged, err := verify(); err != nil || len(damaged) > 1 { // the manifest is shorter than its length has
		t.Errorf("answers that break off: %q, %v", damaged, err)
	}
	for what, change := range map[string]func(p []byte) []byte{
		"other bytes": func(p []byte) []byte { p[len(p)/2] ^= 1; return p },
		"half":        func(p []byte) []byte { return p[:len(p)/2] },
	} {
		s.on(func(_ int, w http.ResponseWriter, r *http.Request, next http.Handler) bool {
			if object(r) {
				replay(w, r, next, 0, change)
			}
			return object(r)
		})
		if damaged, err := verify(); err != nil || len(damaged) != 2 || !strings.Contains(damaged[0], "s3://backups/a/b/objects/") {
			t.Errorf("%s: %q, %v", what, damaged, err)
		}
		before := len(c.staged)
		var corrupt *backupdir.CorruptError
		if _, err := backupdir.In(st, nil).Import(t.Context(), c, "b1", nil, &backupdir.Progress{}); !errors.As(err, &corrupt) {
			t.Errorf("%s are imported: %v", what, err)
		}
		for id, p := range c.staged {
			if p != nil && len(c.staged) > before {
				t.Errorf("%s leave the staged blob %s", what, id)
			}
		}
	}
}

// TestRejections: what a server rejects is an error that names the bucket, and what to do.
func TestRejections(t *testing.T) {
	s := serve(t)
	for _, x := range []struct {
		code   string
		status int
		want   string
	}{
		{"AccessDenied", 403, "allow the access key"},
		{"SignatureDoesNotMatch", 403, "AWS_SECRET_ACCESS_KEY"},
		{"RequestTimeTooSkewed", 403, "clock"},
		{"Unknown", 403, "credentials"},
		{"NotImplemented", 501, "conditional"},
		{"InternalError", 500, "retry later"},
	} {
		s.on(func(_ int, w http.ResponseWriter, _ *http.Request, _ http.Handler) bool {
			w.WriteHeader(x.status)
			fmt.Fprintf(w, `<?xml version="1.0"?><Error><Code>%s</Code><Message>no</Message></Error>`, x.code)
			return true
		})
		var e *Error
		if _, err := s.openAt("s3://backups/a"); !errors.As(err, &e) || !strings.Contains(e.Remedy, x.want) || e.Location != "s3://backups/a" {
			t.Errorf("%s: %v, %+v", x.code, err, e)
		}
	}
	s.on(nil)
	var e *Error
	if _, err := s.openAt("s3://absent"); !errors.As(err, &e) || !strings.Contains(e.Remedy, "create the bucket absent") {
		t.Errorf("a bucket that does not exist: %v", err)
	}
	for _, bad := range []string{"s3://", "s3://a", "s3:backups", "/mnt/backups", "s3://backups/a//b", "s3://backups/../b", "s3://Upper"} {
		if _, err := s.openAt(bad); err == nil {
			t.Errorf("%s is opened", bad)
		}
	}
	for _, bad := range []string{"127.0.0.1:1", "ftp://h", "http://h/path", "http://user@h", "http://"} {
		if _, err := Open(t.Context(), "s3://backups", Config{Endpoint: bad, Getenv: func(name string) string { return s.env[name] }}); err == nil {
			t.Errorf("endpoint %s is accepted", bad)
		}
	}
	s.env = map[string]string{"AWS_SHARED_CREDENTIALS_FILE": t.TempDir() + "/absent"}
	if _, err := s.openAt("s3://backups"); !errors.As(err, &e) || !strings.Contains(e.Remedy, "AWS_ACCESS_KEY_ID") {
		t.Errorf("without credentials: %v", err)
	}
	s.env["AWS_ENDPOINT_URL"], s.env["AWS_ACCESS_KEY_ID"], s.env["AWS_SECRET_ACCESS_KEY"] = "http://127.0.0.1:1", "key", "secret"
	if _, err := Open(t.Context(), "s3://backups", Config{Getenv: func(name string) string { return s.env[name] }}); !errors.As(err, &e) || !strings.Contains(e.Remedy, "server runs") {
		t.Errorf("without a server: %v", err)
	}
}

// TestConditions: of several objects of one name that must be absent one is stored, and bytes that changed on their way are rejected.
func TestConditions(t *testing.T) {
	s := serve(t)
	st := s.open()
	stored := 0
	for i := range 4 {
		switch err := st.put(t.Context(), "x", true, fmt.Append(nil, i)); {
		case err == nil:
			stored++
		case !errors.Is(err, fs.ErrExist):
			t.Error(err)
		}
	}
	if stored != 1 {
		t.Errorf("%d are stored", stored)
	}
	if err := st.put(t.Context(), "x", true, []byte("0")); err != nil {
		t.Errorf("a request that is repeated: %v", err)
	}
	s.on(func(_ int, _ http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if r.Method == http.MethodPut {
			p, _ := io.ReadAll(r.Body)
			p[0] ^= 1
			r.Body = io.NopCloser(bytes.NewReader(p))
		}
		return false
	})
	var e *Error
	if err := st.put(t.Context(), "y", false, []byte("bytes")); !errors.As(err, &e) || e.Remedy == "" {
		t.Errorf("bytes that changed: %v", err)
	}
	large := func(w io.Writer) (string, error) {
		_, err := w.Write(make([]byte, 200))
		return "z", err
	}
	if err := st.Create(t.Context(), 200, false, large); !errors.As(err, &e) {
		t.Errorf("a part that changed: %v", err)
	}
	s.on(nil)
	for _, name := range []string{"y", "z"} {
		if _, _, err := st.Open(t.Context(), name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
	want := errors.New("the source failed")
	if err := st.Create(t.Context(), 200, false, func(w io.Writer) (string, error) { _, _ = w.Write(make([]byte, 100)); return "", want }); !errors.Is(err, want) {
		t.Errorf("a source that fails: %v", err)
	}
	if err := st.Clean(t.Context()); err != nil {
		t.Error(err)
	}
	if left := names(t, st); len(left) > 0 {
		t.Errorf("left are %q", left)
	}
}

// TestLock (SS2): one of many callers has the lock; it keeps it beyond its lease, and loses it to another one only if it cannot renew it.
func TestLock(t *testing.T) {
	s := serve(t)
	st := s.open()
	st.timing = lockTiming{3 * time.Second, 20 * time.Millisecond} // the server's times are whole seconds
	busy := &backupdir.BusyError{}
	held, unlock, err := st.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(st.timing.lease + time.Second); time.Now().Before(end); {
		if _, _, err := s.open().Lock(t.Context()); !errors.As(err, &busy) {
			t.Fatalf("a lock that is held: %v", err)
		}
	}
	unlock()
	var all sync.WaitGroup
	var mu sync.Mutex
	var have []func()
	for range 8 {
		all.Go(func() {
			_, release, err := st.Lock(t.Context())
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				have = append(have, release)
			} else if !errors.As(err, &busy) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if len(have) > 1 {
		t.Fatalf("%d callers have the lock", len(have))
	}
	for _, release := range have {
		release()
	}
	if held.Err() == nil {
		t.Error("a lock that was released is held")
	}

	held, unlock, err = st.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	taker := s.open()
	taker.timing = lockTiming{0, time.Hour} // takes every lock for one of a caller that was killed
	_, release, err := taker.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	<-held.Done()
	if !errors.Is(context.Cause(held), backupdir.ErrLockLost) {
		t.Errorf("the lock was lost by %v", context.Cause(held))
	}
	unlock()
	if _, _, err := st.Lock(t.Context()); !errors.As(err, &busy) {
		t.Errorf("the former holder has released the lock of the present one: %v", err)
	}
	release()
	if _, unlock, err := st.Lock(t.Context()); err != nil {
		t.Errorf("a lock that was released: %v", err)
	} else {
		unlock()
	}
	if left := names(t, st); len(left) != 1 || !strings.HasPrefix(left[0], lockDir) {
		t.Errorf("left are %q", left)
	}
}

// TestLostLock: a copy that loses the lock while it is at work fails with that, lists nothing, and records nothing.
func TestLostLock(t *testing.T) {
	s, c := serve(t), newCluster()
	st := s.open()
	st.timing = lockTiming{time.Minute, time.Millisecond}
	b := c.add("b1", contents...)
	source := taken{c, func(ctx context.Context) {
		taker := s.open()
		taker.timing = lockTiming{0, time.Hour}
		if _, _, err := taker.Lock(t.Context()); err != nil {
			t.Error(err)
		}
		<-ctx.Done()
	}}
	if _, err := backupdir.In(st, nil).Copy(t.Context(), source, b, nil, &backupdir.Progress{}); !errors.Is(err, backupdir.ErrLockLost) {
		t.Errorf("copied: %v", err)
	}
	if all, err := backupdir.In(st, nil).List(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("listed: %+v, %v", all, err)
	}
	for _, name := range names(t, st) {
		if strings.Contains(name, ".partial.") && !strings.HasSuffix(name, ".000000") {
			t.Errorf("record %s was written", name)
		}
	}
}

// taken calls a function before it lists files.
type taken struct {
	*cluster
	take func(ctx context.Context)
}

func (x taken) Files(ctx context.Context, id string, each func(*client.BackupFile) error) error {
	x.take(ctx)
	return x.cluster.Files(ctx, id, each)
}

// TestSharedServer: stores of other prefixes are not seen.
func TestSharedServer(t *testing.T) {
	s, c := serve(t), newCluster()
	other, err := s.openAt("s3://backups/a")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(copyTo(t, s.open(), nil, c, c.add("b1", contents...)), copyTo(t, other, nil, c, c.add("b2", contents...))); err != nil {
		t.Fatal(err)
	}
	for _, st := range []*Store{s.open(), other} {
		all, err := backupdir.In(st, nil).List(t.Context())
		if err != nil || len(all) != 1 {
			t.Errorf("%s has %+v, %v", st.Location(""), all, err)
		}
	}
	if got := names(t, other); slices.ContainsFunc(got, func(name string) bool { return strings.Contains(name, "/b/") }) {
		t.Errorf("objects %q", got)
	}
}
