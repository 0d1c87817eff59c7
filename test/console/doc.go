// Package console tests the console in Chromium, as its users see it. Without Chromium the tests of scripts and styles are skipped, unless STELE_CHROMIUM is set,
// which names the program: "make test" installs it. With STELE_SHOTS=FOLDER they write the screenshots of docs/console.md.
package console
