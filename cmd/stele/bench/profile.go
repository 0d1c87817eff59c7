package bench

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime/pprof"
	"sync"
	"time"

	"github.com/steledb/stele/internal/bench"
)

// A profiler writes CPU profiles of the client and of a node for each workload.
type profiler struct {
	dir  string
	node string // host:port of the node's HTTP server
	errs []error
}

// profileTime is the duration of a node's profile.
const profileTime = 5 * time.Second

func newProfiler(dir, node string) (*profiler, error) {
	return &profiler{dir: dir, node: node}, os.MkdirAll(dir, 0o777)
}

// measuring starts the profiles of a workload. The function that it returns ends them.
func (p *profiler) measuring(w bench.Workload) (done func()) {
	file, err := os.Create(filepath.Join(p.dir, string(w)+".client.pprof"))
	if err == nil {
		err = pprof.StartCPUProfile(file)
	}
	if err != nil {
		p.errs = append(p.errs, err)
		return func() {}
	}
	var fetch sync.WaitGroup
	var failed error
	fetch.Go(func() { failed = p.fetch(w) })
	return func() {
		pprof.StopCPUProfile()
		fetch.Wait()
		p.errs = append(p.errs, file.Close(), failed)
	}
}

// fetch writes the node's profile to a file.
func (p *profiler) fetch(w bench.Workload) error {
	client := http.Client{Timeout: 2*profileTime + 10*time.Second}
	resp, err := client.Get(fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", p.node, int(profileTime.Seconds())))
	if err != nil {
		return fmt.Errorf("profile the node: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("profile the node: %s", resp.Status)
	}
	file, err := os.Create(filepath.Join(p.dir, string(w)+".node.pprof"))
	if err != nil {
		return err
	}
	_, err = io.Copy(file, resp.Body)
	return errors.Join(err, file.Close())
}

func (p *profiler) err() error { return errors.Join(p.errs...) }
