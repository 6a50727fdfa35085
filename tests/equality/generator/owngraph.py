"""stub"""
class OwnGraph: pass
def draw(*a): raise NotImplementedError
