package main

import (
	"errors"
	"fmt"
	"strings"
)

// problems are all that is wrong with a configuration: who has to mend it should not
// have to ask once for each.
type problems []*problem

// A problem is one of them. Its error has a hint if there is one to give.
type problem struct {
	// key is the setting, as it was written; empty if none is meant.
	key string
	// from is where it was written: a line of a file, a variable or a flag.
	from string
	// intro begins the text for people: it names from, and the key if from does not.
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

// Unwrap gives the first, whose exit code is that of all.
func (ps problems) Unwrap() error { return ps[0] }

// ill notes what is wrong with a setting by where its value came from.
func (c *configuration) ill(key string, err error) {
	intro := fmt.Sprintf("%s (%s): ", key, c.origin[key])
	if c.origin[key] == c.place[key] { // a line of the file, which the reader looks at
		intro = fmt.Sprintf("%s: %s: ", c.origin[key], key)
	}
	c.problems = append(c.problems, &problem{key, c.origin[key], intro, err})
}

// illPlace notes what is wrong at a place that is no value.
func (c *configuration) illPlace(key, from string, err error) {
	c.problems = append(c.problems, &problem{key, from, from + ": ", err})
}

// illTogether notes that settings do not go together; err says where they are from.
func (c *configuration) illTogether(key string, err error) {
	c.problems = append(c.problems, &problem{key, c.origin[key], "", err})
}

// err returns all problems as one error; nil if there are none.
func (c *configuration) err() error {
	if len(c.problems) == 0 {
		return nil
	}
	return c.problems
}

// reportProblems prints each with its hint, and returns the exit code.
func (a *app) reportProblems(ps problems) (code int) {
	for _, p := range ps {
		if each := a.reportOne(p); code == exitOK {
			code = each
		}
	}
	return code
}

// configProblemJSON is a problem for programs.
type configProblemJSON struct {
	Key   string `json:"key,omitempty"`
	From  string `json:"from"`
	Error string `json:"error"`
	Hint  string `json:"hint,omitempty"`
}

func (ps problems) forJSON() []configProblemJSON {
	list := []configProblemJSON{}
	for _, p := range ps {
		f := faultOf(p.err)
		list = append(list, configProblemJSON{p.key, p.from, f.err.Error(), f.hint})
	}
	return list
}

// problemsOf returns the problems that err is; nil if it is something else.
func problemsOf(err error) problems {
	var ps problems
	errors.As(err, &ps)
	return ps
}
