// SPDX-License-Identifier: MIT

// Package unet has package net's connections and listeners, driven by a few
// goroutines that receive for all who wait.
package unet
