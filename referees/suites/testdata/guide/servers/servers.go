// SPDX-License-Identifier: MIT

// Package servers has the lines of docs/guide-http.md for servers.
package servers

import (
	"errors"
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/gofiber/fiber/v2"
	"github.com/gorilla/mux"
	"github.com/labstack/echo/v4"
	"github.com/valyala/fasthttp"

	"github.com/ringside-io/ringside/unet"
)

// Serve serves with each library in turn.
func Serve() error {
	l, err := unet.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	for _, router := range []http.Handler{chi.NewRouter(), mux.NewRouter()} {
		if err := http.Serve(l, router); err != nil {
			return err
		}
	}
	r, e, app, h := gin.New(), echo.New(), fiber.New(), func(*fasthttp.RequestCtx) {}
	e.Listener = l
	return errors.Join(r.RunListener(l), e.Start(""), app.Listener(l), fasthttp.Serve(l, h))
}
