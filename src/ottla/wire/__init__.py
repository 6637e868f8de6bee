"""Kafka's wire formats: conversion between bytes and values.

This package uses no sockets, clocks, event loops or files.
"""
