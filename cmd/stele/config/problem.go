package config

import (
	"errors"
	"fmt"
	"strings"

	"github.com/steledb/stele/cmd/stele/cli"
)

// problems are all problems of a configuration, reported together so that one run shows them all.
type problems []*problem

// A problem is an error in the configuration.
type problem struct {
	// key is the setting as it was written; empty if the problem concerns none.
	key string
	// from is the source of the value: a line of a file, a variable or a flag.
	from string
	// intro is the prefix of the message: it names from, and the key if from does not.
	intro string
	err   error
}

func (p *problem) Error() string { return p.intro + p.err.Error() }
func (p *problem) Unwrap() error { return p.err }

func (ps problems) Error() string {
	texts := make([]string, len(ps))
	for i, p := range ps {
		texts[i] = p.Error()
	}
	return strings.Join(texts, "\n")
}

// Unwrap returns the first problem, whose exit code is that of all.
func (ps problems) Unwrap() error { return ps[0] }

// Each returns the problems, to be reported one by one.
func (ps problems) Each() (all []error) {
	for _, p := range ps {
		all = append(all, p)
	}
	return all
}

// addProblem adds a problem with the value of a setting, and names the source of the value.
func (c *Config) addProblem(key string, err error) {
	intro := fmt.Sprintf("%s (%s): ", key, c.origin[key])
	if c.origin[key] == c.place[key] { // FILE:LINE goes first, as compilers print it
		intro = fmt.Sprintf("%s: %s: ", c.origin[key], key)
	}
	c.problems = append(c.problems, &problem{key, c.origin[key], intro, err})
}

// addProblemAt adds a problem at a source that has no valid setting.
func (c *Config) addProblemAt(key, from string, err error) {
	c.problems = append(c.problems, &problem{key, from, from + ": ", err})
}

// addConflict adds a conflict between settings. err names their sources.
func (c *Config) addConflict(key string, err error) {
	c.problems = append(c.problems, &problem{key, c.origin[key], "", err})
}

// Err returns all problems as one error, or nil.
func (c *Config) Err() error {
	if len(c.problems) == 0 {
		return nil
	}
	return c.problems
}

// problemJSON is the --json form of a configuration problem.
type problemJSON struct {
	Key   string `json:"key,omitempty"`
	From  string `json:"from"`
	Error string `json:"error"`
	Hint  string `json:"hint,omitempty"`
}

func (ps problems) forJSON() []problemJSON {
	list := []problemJSON{}
	for _, p := range ps {
		f := cli.FaultOf(p.err)
		list = append(list, problemJSON{p.key, p.from, f.Err.Error(), f.Hint})
	}
	return list
}

// problemsOf returns the problems in err; nil if it has none.
func problemsOf(err error) problems {
	var ps problems
	errors.As(err, &ps)
	return ps
}
