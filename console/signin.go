package console

import (
	"errors"
	"net/http"
	"strings"

	"github.com/steledb/stele/client/api"
)

// signInForm is what the page to sign in shows.
type signInForm struct {
	To    string // the page to show next
	Error string
}

// showSignIn shows the page to sign in.
func (c *Console) showSignIn(w http.ResponseWriter, r *http.Request) {
	if c.cfg.SignIn == nil {
		http.Redirect(w, r, "/", http.StatusSeeOther)
		return
	}
	c.showSignInForm(w, r, http.StatusOK, signInForm{To: pathWithin(r.URL.Query().Get("to"))})
}

func (c *Console) showSignInForm(w http.ResponseWriter, r *http.Request, status int, f signInForm) {
	c.render(w, r, status, &content{Title: "Sign in", Template: "signin.html", Data: f})
}

// signIn verifies an access token.
func (c *Console) signIn(w http.ResponseWriter, r *http.Request) {
	if c.cfg.SignIn == nil {
		http.Redirect(w, r, "/", http.StatusSeeOther)
		return
	}
	if err := readForm(w, r); err != nil {
		c.fail(w, r, err)
		return
	}
	to := pathWithin(r.PostFormValue("to"))
	switch err := c.cfg.SignIn(w, r, strings.TrimSpace(r.PostFormValue("token"))); {
	case err == nil:
		http.Redirect(w, r, to, http.StatusSeeOther)
	case errors.Is(err, api.ErrUnauthenticated):
		c.showSignInForm(w, r, http.StatusUnauthorized, signInForm{To: to, Error: err.Error()})
	default:
		c.fail(w, r, err)
	}
}

// signOut forgets the token.
func (c *Console) signOut(w http.ResponseWriter, r *http.Request) {
	if c.cfg.SignOut != nil {
		c.cfg.SignOut(w, r)
	}
	http.Redirect(w, r, "/signin", http.StatusSeeOther)
}

// pathWithin returns a path of this console, and / for anything else, such as the address of another site.
func pathWithin(to string) string {
	if !strings.HasPrefix(to, "/") || strings.HasPrefix(to, "//") || strings.ContainsAny(to, "\\\r\n\t") {
		return "/"
	}
	return to
}
