package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// javaProject is where the work program of a client in Java is compiled. The versions are those of its quickstart program.
type javaProject struct {
	path       string // the class path
	quickstart func(endpoint string) command
}

// pom is the Maven project in the quickstart programs.
var pom = regexp.MustCompile(`(?ms)^<project.*^</project>\n`)

// installMaven gets the packages of a client, and compiles sources with them.
func installMaven(ctx context.Context, in place, language string, files ...string) (*javaProject, error) {
	if err := errors.Join(need("javac", "default-jdk"), need("mvn", "maven")); err != nil {
		return nil, err
	}
	text, err := in.quickstart(ctx, language)
	if err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(filepath.Join(in.cache, language))
	if err != nil {
		return nil, err
	}
	if err := once(dir, "pom.xml", pom.Find(text), func() error {
		return mvn(ctx, dir, "dependency:build-classpath", "-Dmdep.outputFile=classpath")
	}); err != nil {
		return nil, err
	}
	packages, err := os.ReadFile(filepath.Join(dir, "classpath"))
	if err != nil {
		return nil, err
	}
	classes := filepath.Join(dir, "classes")
	p := &javaProject{path: string(bytes.TrimSpace(packages)) + string(os.PathListSeparator) + classes}
	compile := []string{"javac", "-nowarn", "-cp", p.path, "-d", classes}
	for _, f := range files {
		path := filepath.Join(dir, filepath.Base(f))
		if err := write(path, source(f)); err != nil {
			return nil, err
		}
		compile = append(compile, path)
	}
	if p.quickstart, err = in.printedCommands(dir, text); err != nil {
		return nil, err
	}
	return p, run(ctx, "", nil, compile...)
}

func mvn(ctx context.Context, dir string, args ...string) error {
	return run(ctx, dir, nil, append([]string{"mvn", "-q", "-B"}, args...)...)
}

// printedCommands returns a program that runs, in an empty folder, the commands that a quickstart program begins with, as printed but for the address.
func (in place) printedCommands(dir string, text []byte) (func(endpoint string) command, error) {
	var script []string
	for line := range strings.Lines(string(text)) {
		if c, ok := strings.CutPrefix(line, "//   "); ok {
			script = append(script, c)
		}
	}
	if len(script) == 0 {
		return nil, errors.New("the quickstart program does not state how to run it")
	}
	stele, err := filepath.Abs(in.stele)
	if err != nil {
		return nil, err
	}
	begin := fmt.Sprintf("set -e; d=$(mktemp -d -p %q); trap 'rm -rf \"$d\"' EXIT; cd \"$d\"\n", dir)
	return func(endpoint string) command {
		commands := strings.ReplaceAll(strings.Join(script, ""), "127.0.0.1:7109", endpoint)
		return command{args: []string{"bash", "-c", begin + commands}, env: []string{"PATH=" + filepath.Dir(stele) + ":" + os.Getenv("PATH")}}
	}, nil
}

func installJava(ctx context.Context, in place) (*programs, error) {
	p, err := installMaven(ctx, in, "java", "Work.java")
	if err != nil {
		return nil, err
	}
	return &programs{quickstart: p.quickstart, work: workFromEnvironment([]string{"java", "-cp", p.path, "Work"})}, nil
}
