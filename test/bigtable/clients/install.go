package main

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// sources are the work programs, and the files that name the versions of clients.
//
//go:embed programs
var sources embed.FS

// command is a command, and what it adds to the environment.
type command struct {
	args []string
	env  []string
	how  string // the credential that it uses, for the output
}

func (c command) cmd(ctx context.Context) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.args[0], c.args[1:]...)
	cmd.Env = append(os.Environ(), c.env...)
	return cmd
}

// programs are the programs of a client.
type programs struct {
	quickstart func(endpoint string) command // nil: it has none
	// work returns the work programs for a cluster, without the table and the seconds: one for each kind of credential.
	work func(c *cluster) ([]command, error)
}

// fromEnvironment is a program that reads the address of the cluster from the environment, as Google's clients do.
func fromEnvironment(args []string, env ...string) func(endpoint string) command {
	return func(endpoint string) command {
		return command{args: args, env: append([]string{"BIGTABLE_EMULATOR_HOST=" + endpoint}, env...)}
	}
}

// workFromEnvironment is fromEnvironment for a work program.
func workFromEnvironment(args []string, env ...string) func(c *cluster) ([]command, error) {
	return func(c *cluster) ([]command, error) {
		return []command{fromEnvironment(args, env...)(c.endpoint())}, nil
	}
}

// place is where clients are installed, and the program of nodes.
type place struct{ cache, stele string }

// client is one that can be installed.
type client struct {
	name    string
	install func(ctx context.Context, in place) (*programs, error)
	shapes  []shape
}

// cbtPackage is the last version in the module of the Go client: the later ones are not in the Go module proxy.
const cbtPackage = "cloud.google.com/go/bigtable/cmd/cbt@v1.11.0"

var (
	open    = []shape{{nodes: 1}, {nodes: 3}}
	secured = append(slices.Clone(open), shape{nodes: 3, secure: true})
)

var clients = []client{
	{"go", installGo, open},
	// In sessions, a call without a deadline waits for minutes after its endpoint was away: see docs/bigtable.md.
	{"go-sessions", installSessions, open[1:]},
	{"python", installPython("work.py"), open}, {"python-async", installPython("work_async.py"), open}, {"node", installNode, open}, {"java", installJava, open},
	{"hbase", installHBase, secured},
	// Beam has many connections, of which a user may have a part that depends on the memory.
	{"beam", installBeam, append(slices.Clone(open), shape{nodes: 3, secure: true, https: true, memory: "2GiB"})},
	{"cbt", installCBT, open},
}

func names() (all []string) {
	for _, c := range clients {
		all = append(all, c.name)
	}
	return all
}

// find returns the client with a name, or nil.
func find(name string) *client {
	if i := slices.IndexFunc(clients, func(c client) bool { return c.name == name }); i >= 0 {
		return &clients[i]
	}
	return nil
}

// need returns an error unless the machine has a program.
func need(program, packages string) error {
	if _, err := exec.LookPath(program); err != nil {
		return fmt.Errorf("this machine has no %s: install it (apt-get install %s)", program, packages)
	}
	return nil
}

// run runs a command in a folder. Its output is in the error.
func run(ctx context.Context, dir string, env []string, args ...string) error {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// source returns the source of a program, or a file beside it.
func source(name string) []byte {
	b, err := sources.ReadFile("programs/" + name)
	if err != nil {
		panic("BUG: no such source: " + err.Error())
	}
	return b
}

// quickstart returns the quickstart program of a language, as the command line prints it.
func (in place) quickstart(ctx context.Context, language string) ([]byte, error) {
	return exec.CommandContext(ctx, in.stele, "bigtable", "quickstart", language).Output()
}

// writeQuickstart writes the quickstart program of a language.
func (in place) writeQuickstart(ctx context.Context, path, language string) error {
	text, err := in.quickstart(ctx, language)
	if err != nil {
		return err
	}
	return write(path, text)
}

func write(path string, b []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o666)
}

// once makes a folder from a file that names the versions of what is in it, unless it was made from the same one.
func once(dir, versions string, want []byte, fill func() error) error {
	stamp := filepath.Join(dir, "installed")
	if got, err := os.ReadFile(stamp); err == nil && bytes.Equal(got, want) {
		return nil
	}
	if err := errors.Join(os.RemoveAll(dir), write(filepath.Join(dir, versions), want), fill()); err != nil {
		return err
	}
	return write(stamp, want)
}

func installGo(ctx context.Context, in place) (*programs, error) {
	dir, err := filepath.Abs(filepath.Join(in.cache, "go"))
	if err != nil {
		return nil, err
	}
	main, quickstart, work := filepath.Join(dir, "quickstart.go"), filepath.Join(dir, "quickstart"), filepath.Join(dir, "work")
	if err := in.writeQuickstart(ctx, main, "go"); err != nil {
		return nil, err
	}
	p := &programs{quickstart: fromEnvironment([]string{quickstart}), work: workFromEnvironment([]string{work})}
	return p, errors.Join(run(ctx, "", nil, "go", "build", "-o", quickstart, main), run(ctx, "", nil, "go", "build", "-o", work, "./test/bigtable/clients/workload"))
}

// installSessions is installGo for a client that opens sessions.
func installSessions(ctx context.Context, in place) (*programs, error) {
	p, err := installGo(ctx, in)
	if err == nil {
		goWork := p.work
		p.quickstart, p.work = nil, func(c *cluster) ([]command, error) {
			all, err := goWork(c)
			all[0].env = append(all[0].env, "SESSIONS=1")
			return all, err
		}
	}
	return p, err
}

func installPython(file string) func(ctx context.Context, in place) (*programs, error) {
	return func(ctx context.Context, in place) (*programs, error) {
		if err := need("python3", "python3 python3-venv"); err != nil {
			return nil, err
		}
		dir := filepath.Join(in.cache, "python")
		python, main, work := filepath.Join(dir, "bin", "python"), filepath.Join(dir, "quickstart.py"), filepath.Join(dir, file)
		if err := once(dir, "requirements.txt", source("requirements.txt"), func() error {
			if err := run(ctx, "", nil, "python3", "-m", "venv", dir); err != nil {
				return err
			}
			return run(ctx, "", nil, python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", filepath.Join(dir, "requirements.txt"))
		}); err != nil {
			return nil, err
		}
		p := &programs{quickstart: fromEnvironment([]string{python, "-W", "ignore", main}), work: workFromEnvironment([]string{python, "-W", "ignore", work})}
		return p, errors.Join(in.writeQuickstart(ctx, main, "python"), write(work, source(file)))
	}
}

func installNode(ctx context.Context, in place) (*programs, error) {
	if err := errors.Join(need("node", "nodejs"), need("npm", "npm")); err != nil {
		return nil, err
	}
	dir := filepath.Join(in.cache, "node")
	main, work := filepath.Join(dir, "quickstart.js"), filepath.Join(dir, "work.js")
	if err := once(dir, "package.json", source("package.json"), func() error {
		return run(ctx, dir, nil, "npm", "install", "--no-audit", "--no-fund", "--loglevel=error")
	}); err != nil {
		return nil, err
	}
	p := &programs{quickstart: fromEnvironment([]string{"node", "--no-warnings", main}), work: workFromEnvironment([]string{"node", "--no-warnings", work})}
	return p, errors.Join(in.writeQuickstart(ctx, main, "node"), write(work, source("work.js")))
}

func installCBT(ctx context.Context, in place) (*programs, error) {
	if err := need("bash", "bash"); err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(filepath.Join(in.cache, "cbt"))
	if err != nil {
		return nil, err
	}
	cbt, work := filepath.Join(dir, "cbt"), filepath.Join(dir, "work-cbt.sh")
	if _, err := os.Stat(cbt); err != nil {
		if err := run(ctx, "", []string{"GOBIN=" + dir}, "go", "install", cbtPackage); err != nil {
			return nil, err
		}
	}
	return &programs{work: workFromEnvironment([]string{"bash", work}, "CBT="+cbt)}, write(work, source("work-cbt.sh"))
}
