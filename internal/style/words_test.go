package style

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

// retired are words that this tree no longer uses, with what to write instead. Names are checked word by word.
var retired = map[string]string{
	"tell": "return, report", "tells": "returns, reports", "told": "returned, reported",
	"say": "report, state", "says": "reports, states", "said": "reported",
	"somebody": "the client, the caller", "nobody": "no client, no caller", "anybody": "any client",
	"who": "the client, the caller, the user", "whoever": "the client that", "whom": "the client",
	"he": "the user, they", "his": "the user's, their", "him": "the user, them",
	"room": "capacity, free space, memory", "gait": "pacer", "lent": "reserved", "lend": "reserve",
	"keeper": "repairer, lease manager, keepalive", "vital": "high priority", "fleet": "members", "rotten": "corrupt", "rot": "corruption",
	"boss": "master", "wish": "request", "wishes": "requests", "unled": "no leader", "handover": "cutover, cache warm-up",
	"reign": "mastership, epoch", "astray": "misrouted", "seldom": "rate-limited", "unsaid": "suppressed", "leftovers": "orphans",
	"sever": "disconnect", "reckoned": "estimated", "whereabouts": "location",
}

// retiredNames are words that only names no longer use: in prose they have an ordinary meaning.
var retiredNames = map[string]string{
	"halt": "write fence", "cuts": "split points", "sight": "visibility", "asked": "request", "matter": "audit subject", "alone": "exclusive",
}

// TestWords finds retired words in comments, names and pages.
func TestWords(t *testing.T) {
	note := func(path string, line int, word, instead string) {
		t.Errorf("%s:%d: %q: write %s", path, line, word, instead)
	}
	for _, f := range parseTree(t) {
		for _, g := range f.ast.Comments {
			for _, c := range g.List {
				for i, line := range strings.Split(c.Text, "\n") {
					for _, w := range wordsOf(line) {
						if instead, ok := retired[w]; ok {
							note(f.path, f.at(c.Pos())+i, w, instead)
						}
					}
				}
			}
		}
		forEachName(f.ast, func(id *ast.Ident) {
			for _, w := range splitName(id.Name) {
				instead, ok := retired[w]
				if !ok {
					instead, ok = retiredNames[w]
				}
				if ok && !f.test() {
					note(f.path, f.at(id.Pos()), id.Name, instead)
				}
			}
		})
	}
	for _, path := range listFiles(t, ".md") {
		for i, line := range prose(t, path) {
			for _, w := range wordsOf(line) {
				if instead, ok := retired[w]; ok {
					note(path, i+1, w, instead)
				}
			}
		}
	}
}

var aWord = regexp.MustCompile(`[A-Za-z]+(?:[_.(][A-Za-z]+)*`)

// persons are words that a relative clause may follow.
var persons = map[string]bool{"user": true, "users": true, "administrator": true, "administrators": true, "operator": true, "operators": true, "people": true}

// wordsOf returns the words of a line in lower case. Names of code, which have a dot, an underscore or capitals inside, are not words.
func wordsOf(line string) []string {
	var words []string
	before := ""
	for _, w := range aWord.FindAllString(line, -1) {
		clause := w == "who" && persons[before]
		if before = strings.ToLower(w); clause {
			continue
		}
		if !strings.ContainsAny(w, "_.(") && strings.ToLower(w[1:]) == w[1:] {
			words = append(words, strings.ToLower(w))
		}
	}
	return words
}

// splitName returns the words of a Go name in lower case.
func splitName(name string) []string {
	var words []string
	begin := 0
	runes := []rune(name)
	for i := 1; i <= len(runes); i++ {
		if i == len(runes) || runes[i] == '_' || unicode.IsUpper(runes[i]) && !unicode.IsUpper(runes[i-1]) {
			words = append(words, strings.ToLower(strings.Trim(string(runes[begin:i]), "_")))
			begin = i
		}
	}
	return words
}

func TestSplitName(t *testing.T) {
	for name, want := range map[string]string{"askedBy": "asked by", "HTTPPort": "httpport", "who": "who", "aB_c": "a b c"} {
		if got := strings.Join(splitName(name), " "); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// forEachName calls f for each name that a file declares.
func forEachName(file *ast.File, f func(*ast.Ident)) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			f(n.Name)
		case *ast.TypeSpec:
			f(n.Name)
		case *ast.ValueSpec:
			for _, id := range n.Names {
				f(id)
			}
		case *ast.Field:
			for _, id := range n.Names {
				f(id)
			}
		case *ast.AssignStmt:
			if n.Tok.String() == ":=" {
				for _, x := range n.Lhs {
					if id, ok := x.(*ast.Ident); ok {
						f(id)
					}
				}
			}
		}
		return true
	})
}

var inlineCode = regexp.MustCompile("`[^`]*`")

// prose returns the lines of a page with code blanked out.
func prose(t *testing.T, path string) []string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(b), "\n")
	fenced := false
	for i, line := range lines {
		switch {
		case strings.HasPrefix(strings.TrimSpace(line), "```"):
			fenced = !fenced
			lines[i] = ""
		case fenced, strings.HasPrefix(line, "    ") && !strings.HasPrefix(strings.TrimSpace(line), "-"):
			lines[i] = ""
		default:
			lines[i] = inlineCode.ReplaceAllString(line, "")
		}
	}
	return lines
}
