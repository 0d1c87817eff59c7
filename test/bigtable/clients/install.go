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

// programs are commands that run the programs of a client.
type programs struct {
	quickstart []string // nil: it has none
	work       []string // without the table and the seconds
	env        []string
}

// place is where clients are installed, and the program of nodes.
type place struct{ cache, stele string }

// client is one that can be installed.
type client struct {
	name    string
	install func(ctx context.Context, in place) (*programs, error)
	nodes   []int // of the clusters
}

// cbtPackage is the last version in the module of the Go client: the later ones are not in the Go module proxy.
const cbtPackage = "cloud.google.com/go/bigtable/cmd/cbt@v1.11.0"

var both = []int{1, 3}

var clients = []client{
	{"go", installGo, both},
	// In sessions, a call without a deadline waits for minutes after its endpoint was away: see docs/bigtable.md.
	{"go-sessions", installSessions, []int{3}},
	{"python", installPython("work.py"), both}, {"python-async", installPython("work_async.py"), both}, {"node", installNode, both}, {"java", installJava, both},
	{"cbt", installCBT, both},
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

// copyTo writes the source of a program, or a file beside it.
func copyTo(path, source string) error {
	b, err := sources.ReadFile("programs/" + source)
	if err != nil {
		return err
	}
	return write(path, b)
}

// quickstart writes the quickstart program of a language, as the command line prints it.
func (in place) quickstart(ctx context.Context, path, language string) error {
	text, err := exec.CommandContext(ctx, in.stele, "bigtable", "quickstart", language).Output()
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
func once(dir, versions string, fill func() error) error {
	want, err := sources.ReadFile("programs/" + versions)
	if err != nil {
		return err
	}
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
	main := filepath.Join(dir, "quickstart.go")
	if err := in.quickstart(ctx, main, "go"); err != nil {
		return nil, err
	}
	p := &programs{quickstart: []string{filepath.Join(dir, "quickstart")}, work: []string{filepath.Join(dir, "work")}}
	return p, errors.Join(run(ctx, "", nil, "go", "build", "-o", p.quickstart[0], main), run(ctx, "", nil, "go", "build", "-o", p.work[0], "./test/bigtable/clients/workload"))
}

// installSessions is installGo for a client that opens sessions.
func installSessions(ctx context.Context, in place) (*programs, error) {
	p, err := installGo(ctx, in)
	if err == nil {
		p.quickstart, p.env = nil, []string{"SESSIONS=1"}
	}
	return p, err
}

func installPython(source string) func(ctx context.Context, in place) (*programs, error) {
	return func(ctx context.Context, in place) (*programs, error) {
		if err := need("python3", "python3 python3-venv"); err != nil {
			return nil, err
		}
		dir := filepath.Join(in.cache, "python")
		python, main, work := filepath.Join(dir, "bin", "python"), filepath.Join(dir, "quickstart.py"), filepath.Join(dir, source)
		if err := once(dir, "requirements.txt", func() error {
			if err := run(ctx, "", nil, "python3", "-m", "venv", dir); err != nil {
				return err
			}
			return run(ctx, "", nil, python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", filepath.Join(dir, "requirements.txt"))
		}); err != nil {
			return nil, err
		}
		return &programs{quickstart: []string{python, "-W", "ignore", main}, work: []string{python, "-W", "ignore", work}}, errors.Join(in.quickstart(ctx, main, "python"), copyTo(work, source))
	}
}

func installNode(ctx context.Context, in place) (*programs, error) {
	if err := errors.Join(need("node", "nodejs"), need("npm", "npm")); err != nil {
		return nil, err
	}
	dir := filepath.Join(in.cache, "node")
	main, work := filepath.Join(dir, "quickstart.js"), filepath.Join(dir, "work.js")
	if err := once(dir, "package.json", func() error {
		return run(ctx, dir, nil, "npm", "install", "--no-audit", "--no-fund", "--loglevel=error")
	}); err != nil {
		return nil, err
	}
	return &programs{quickstart: []string{"node", "--no-warnings", main}, work: []string{"node", "--no-warnings", work}}, errors.Join(in.quickstart(ctx, main, "node"), copyTo(work, "work.js"))
}

func installJava(ctx context.Context, in place) (*programs, error) {
	if err := errors.Join(need("javac", "default-jdk"), need("mvn", "maven")); err != nil {
		return nil, err
	}
	dir := filepath.Join(in.cache, "java")
	if err := once(dir, "pom.xml", func() error {
		return run(ctx, dir, nil, "mvn", "-q", "-B", "dependency:build-classpath", "-Dmdep.outputFile=classpath")
	}); err != nil {
		return nil, err
	}
	classpath, err := os.ReadFile(filepath.Join(dir, "classpath"))
	if err != nil {
		return nil, err
	}
	main, work, classes := filepath.Join(dir, "Quickstart.java"), filepath.Join(dir, "Work.java"), filepath.Join(dir, "classes")
	if err := errors.Join(in.quickstart(ctx, main, "java"), copyTo(work, "Work.java")); err != nil {
		return nil, err
	}
	path := strings.TrimSpace(string(classpath)) + string(os.PathListSeparator) + classes
	err = run(ctx, "", nil, "javac", "-cp", path, "-d", classes, main, work)
	return &programs{quickstart: []string{"java", "-cp", path, "Quickstart"}, work: []string{"java", "-cp", path, "Work"}}, err
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
	return &programs{work: []string{"bash", work}, env: []string{"CBT=" + cbt}}, copyTo(work, "work-cbt.sh")
}
